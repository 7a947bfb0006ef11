// \0rolldown/runtime.js
var e = Object.defineProperty, t = (e, t, n) => () => {
	if (n) throw n[0];
	try {
		return e && (t = e(e = 0)), t;
	} catch (e) {
		throw n = [e], e;
	}
}, n = (t, n) => {
	let r = {};
	for (var i in t) e(r, i, {
		get: t[i],
		enumerable: !0
	});
	return n || e(r, Symbol.toStringTag, { value: "Module" }), r;
}, r = Array.isArray, i = Array.prototype.indexOf, a = Array.prototype.includes, o = Array.from, s = Object.defineProperty, c = Object.getOwnPropertyDescriptor, l = Object.getOwnPropertyDescriptors, u = Object.prototype, d = Array.prototype, f = Object.getPrototypeOf, p = Object.isExtensible, m = () => {};
function h(e) {
	for (var t = 0; t < e.length; t++) e[t]();
}
function g() {
	var e, t;
	return {
		promise: new Promise((n, r) => {
			e = n, t = r;
		}),
		resolve: e,
		reject: t
	};
}
function _(e, t) {
	if (Array.isArray(e)) return e;
	if (t === void 0 || !(Symbol.iterator in e)) return Array.from(e);
	let n = [];
	for (let r of e) if (n.push(r), n.length === t) break;
	return n;
}
var v = 1024, y = 2048, b = 4096, x = 8192, S = 16384, C = 32768, w = 1 << 25, T = 65536, E = 1 << 19, ee = 1 << 20, te = 1 << 25, ne = 1 << 21, re = 1 << 22, ie = 1 << 23, ae = Symbol("$state"), oe = Symbol("component"), se = Symbol("legacy props"), ce = Symbol(""), le = Symbol("attributes"), ue = Symbol("class"), de = Symbol("style"), fe = Symbol("text"), pe = Symbol("form reset"), me = new class extends Error {
	name = "StaleReactionError";
	message = "The reaction that called `getAbortSignal()` was re-run or destroyed";
}(), he = !!globalThis.document?.contentType && /* @__PURE__ */ globalThis.document.contentType.includes("xml"), ge = {}, _e = Symbol("uninitialized"), ve = "http://www.w3.org/1999/xhtml";
function ye() {
	console.warn("https://svelte.dev/e/derived_inert");
}
function be(e) {
	console.warn("https://svelte.dev/e/hydration_mismatch");
}
function xe() {
	console.warn("https://svelte.dev/e/select_multiple_invalid_value");
}
function Se() {
	console.warn("https://svelte.dev/e/svelte_boundary_reset_noop");
}
// node_modules/svelte/src/internal/client/dom/hydration.js
var D = !1;
function Ce(e) {
	D = e;
}
var O;
function we(e) {
	if (e === null) throw be(), ge;
	return O = e;
}
function Te() {
	return we(/* @__PURE__ */ dn(O));
}
function k(e) {
	if (D) {
		if (/* @__PURE__ */ dn(O) !== null) throw be(), ge;
		O = e;
	}
}
function Ee(e = 1) {
	if (D) {
		for (var t = e, n = O; t--;) n = /* @__PURE__ */ dn(n);
		O = n;
	}
}
function De(e = !0) {
	for (var t = 0, n = O;;) {
		if (n.nodeType === 8) {
			var r = n.data;
			if (r === "]") {
				if (t === 0) return n;
				--t;
			} else (r === "[" || r === "[!" || r[0] === "[" && !isNaN(Number(r.slice(1)))) && (t += 1);
		}
		var i = /* @__PURE__ */ dn(n);
		e && n.remove(), n = i;
	}
}
function Oe(e) {
	if (!e || e.nodeType !== 8) throw be(), ge;
	return e.data;
}
// node_modules/svelte/src/internal/client/reactivity/equality.js
function ke(e) {
	return e === this.v;
}
function Ae(e, t) {
	return e == e ? e !== t || typeof e == "object" && !!e || typeof e == "function" : t == t;
}
function je(e) {
	return !Ae(e, this.v);
}
function Me(e) {
	throw Error("https://svelte.dev/e/lifecycle_outside_component");
}
// node_modules/svelte/src/internal/client/errors.js
function Ne() {
	throw Error("https://svelte.dev/e/async_derived_orphan");
}
function Pe(e, t, n) {
	throw Error("https://svelte.dev/e/each_key_duplicate");
}
function Fe(e) {
	throw Error("https://svelte.dev/e/effect_in_teardown");
}
function Ie() {
	throw Error("https://svelte.dev/e/effect_in_unowned_derived");
}
function Le(e) {
	throw Error("https://svelte.dev/e/effect_orphan");
}
function Re() {
	throw Error("https://svelte.dev/e/effect_update_depth_exceeded");
}
function ze(e) {
	throw Error("https://svelte.dev/e/props_invalid_value");
}
function Be() {
	throw Error("https://svelte.dev/e/state_descriptors_fixed");
}
function Ve() {
	throw Error("https://svelte.dev/e/state_prototype_fixed");
}
function He() {
	throw Error("https://svelte.dev/e/state_unsafe_mutation");
}
function Ue() {
	throw Error("https://svelte.dev/e/svelte_boundary_reset_onerror");
}
// node_modules/svelte/src/internal/shared/context.js
function We(e) {
	let t = e.p;
	for (; t !== null && t.c === null;) t = t.p;
	return t?.c ?? null;
}
function Ge(e, t) {
	return e === null && Me(t), e.c ??= new Map(We(e) || void 0);
}
// node_modules/svelte/src/internal/client/context.js
var Ke = null;
function qe(e) {
	Ke = e;
}
function Je(e) {
	return Ge(Ke, "getContext").get(e);
}
function Ye(e, t) {
	return Ge(Ke, "setContext").set(e, t), t;
}
function Xe(e, t = !1, n) {
	Ke = {
		p: Ke,
		i: !1,
		c: null,
		e: null,
		s: e,
		x: null,
		r: B,
		l: null
	};
}
function Ze(e) {
	var t = Ke, n = t.e;
	if (n !== null) {
		t.e = null;
		for (var r of n) wn(r);
	}
	return e !== void 0 && (t.x = e), t.i = !0, Ke = t.p, Qe(e);
}
function Qe(e = {}) {
	return s(e, oe, { value: !0 }), e;
}
function $e() {
	return !0;
}
// node_modules/svelte/src/internal/client/dom/task.js
var et = [];
function tt() {
	var e = et;
	et = [], h(e);
}
function nt(e) {
	if (et.length === 0 && !kt) {
		var t = et;
		queueMicrotask(() => {
			t === et && tt();
		});
	}
	et.push(e);
}
function rt() {
	for (; et.length > 0;) tt();
}
// node_modules/svelte/src/internal/client/reactivity/status.js
var it = ~(y | b | v);
function at(e, t) {
	e.f = e.f & it | t;
}
function ot(e) {
	e.f & 512 || e.deps === null ? at(e, v) : at(e, b);
}
// node_modules/svelte/src/internal/client/reactivity/utils.js
function st(e, t) {
	e.f & 2048 ? t.set(e, y) : e.f & 4096 && t.get(e) !== 2048 && t.set(e, b), at(e, v);
}
// node_modules/svelte/src/internal/client/dom/elements/misc.js
var ct = !1;
function lt() {
	ct || (ct = !0, document.addEventListener("reset", (e) => {
		Promise.resolve().then(() => {
			if (!e.defaultPrevented) for (let t of e.target.elements) t[pe]?.();
		});
	}, { capture: !0 }));
}
// node_modules/svelte/src/internal/client/dom/elements/bindings/shared.js
function ut(e) {
	var t = z, n = B;
	Kn(null), qn(null);
	try {
		return e();
	} finally {
		Kn(t), qn(n);
	}
}
function dt(e, t, n, r = n) {
	e.addEventListener(t, () => ut(n));
	let i = e[pe];
	e[pe] = i ? () => {
		i(), r(!0);
	} : () => r(!0), lt();
}
// node_modules/svelte/src/internal/client/reactivity/async.js
function ft(e, t, n, r) {
	let i = $e() ? gt : yt;
	var a = e.filter((e) => !e.settled), o = t.map(i);
	if (n.length === 0 && a.length === 0) {
		r(o);
		return;
	}
	var s = B, c = pt(), l = a.length === 1 ? a[0].promise : a.length > 1 ? Promise.all(a.map((e) => e.promise)) : null;
	function u(e) {
		if (!(s.f & 16384)) {
			c();
			try {
				r([...o, ...e]);
			} catch (e) {
				_n(e, s);
			}
			mt();
		}
	}
	var d = ht();
	if (n.length === 0) {
		l.then(() => u([])).finally(d);
		return;
	}
	function f() {
		Promise.all(n.map((e) => /* @__PURE__ */ vt(e))).then(u).catch((e) => _n(e, s)).finally(d);
	}
	l ? l.then(() => {
		s.f & 16384 ? d() : (c(), f(), mt());
	}) : f();
}
function pt() {
	var e = B, t = z, n = Ke, r = j;
	return function(i = !0) {
		qn(e), Kn(t), qe(n), i && !(e.f & 16384) && (r?.activate(), r?.apply());
	};
}
function mt(e = !0) {
	qn(null), Kn(null), qe(null), e && j?.deactivate();
}
function ht() {
	var e = B, t = e.b, n = j, r = !!t?.is_rendered();
	return t?.update_pending_count(1, n), n.increment(r, e), () => {
		t?.update_pending_count(-1, n), n.decrement(r, e);
	};
}
/*#__NO_SIDE_EFFECTS__*/
function gt(e) {
	var t = 2 | y;
	return B !== null && (B.f |= E), {
		ctx: Ke,
		deps: null,
		effects: null,
		equals: ke,
		f: t,
		fn: e,
		reactions: null,
		rv: 0,
		v: _e,
		wv: 0,
		parent: B,
		ac: null
	};
}
var _t = Symbol("obsolete");
/*#__NO_SIDE_EFFECTS__*/
function vt(e, t, n) {
	let r = B;
	r === null && Ne();
	var i = void 0, a = Kt(_e), o = !z, s = /* @__PURE__ */ new Set();
	return Dn(() => {
		var t = B, n = g();
		i = n.promise;
		try {
			Promise.resolve(e()).then(n.resolve, (e) => {
				e !== me && n.reject(e);
			}).finally(mt);
		} catch (e) {
			n.reject(e), mt();
		}
		var c = j;
		if (o) {
			if (t.f & 32768) var l = ht();
			if (r.b?.is_rendered()) c.async_deriveds.get(t)?.reject(_t);
			else for (let e of s.values()) e.reject(_t);
			s.add(n), c.async_deriveds.set(t, n);
		}
		let u = (e, t = void 0) => {
			l?.(), s.delete(n), t !== _t && (c.activate(), t ? (a.f |= ie, Xt(a, t)) : (a.f & 8388608 && (a.f ^= ie), Xt(a, e)), c.deactivate());
		};
		n.promise.then(u, (e) => u(null, e || "unknown"));
	}), Sn(() => {
		for (let e of s) e.reject(_t);
	}), new Promise((e) => {
		function t(n) {
			function r() {
				n === i ? e(a) : t(i);
			}
			n.then(r, r);
		}
		t(i);
	});
}
/*#__NO_SIDE_EFFECTS__*/
function A(e) {
	let t = /* @__PURE__ */ gt(e);
	return Yn(t), t;
}
/*#__NO_SIDE_EFFECTS__*/
function yt(e) {
	let t = /* @__PURE__ */ gt(e);
	return t.equals = je, t;
}
function bt(e) {
	var t = e.effects;
	if (t !== null) {
		e.effects = null;
		for (var n = 0; n < t.length; n += 1) Pn(t[n]);
	}
}
function xt(e) {
	var t, n = B, r = e.parent;
	if (!Un && r !== null && e.v !== _e && r.f & 24576) return ye(), e.v;
	qn(r);
	try {
		bt(e), t = sr(e);
	} finally {
		qn(n);
	}
	return t;
}
function St(e) {
	var t = xt(e);
	!e.equals(t) && (e.wv = ir(), (!j?.is_fork || e.deps === null) && (j === null ? e.v = t : (j.capture(e, t, !0), Et?.capture(e, t, !0)), e.deps === null)) ? at(e, v) : Un || (Dt === null ? ot(e) : (xn() || j?.is_fork) && Dt.set(e, t));
}
function Ct(e) {
	if (e.effects !== null) for (let t of e.effects) (t.teardown || t.ac) && (t.teardown?.(), t.ac !== null && ut(() => {
		t.ac.abort(me), t.ac = null;
	}), t.fn !== null && (t.teardown = m), ur(t, 0), Mn(t));
}
function wt(e) {
	if (e.effects !== null) for (let t of e.effects) t.teardown && t.fn !== null && dr(t);
}
// node_modules/svelte/src/internal/client/reactivity/batch.js
var Tt = null, j = null, Et = null, Dt = null, Ot = null, kt = !1, At = !1, jt = null, Mt = null, Nt = 0, Pt = 1, Ft = class e {
	id = Pt++;
	started = !1;
	linked = !0;
	prev = null;
	next = null;
	async_deriveds = /* @__PURE__ */ new Map();
	current = /* @__PURE__ */ new Map();
	previous = /* @__PURE__ */ new Map();
	#e = /* @__PURE__ */ new Set();
	#t = /* @__PURE__ */ new Set();
	#n = 0;
	#r = /* @__PURE__ */ new Map();
	#i = null;
	#a = [];
	#o = [];
	#s = /* @__PURE__ */ new Map();
	#c = /* @__PURE__ */ new Map();
	#l = /* @__PURE__ */ new Set();
	is_fork = !1;
	#u = !1;
	constructor() {
		Tt === null ? Tt = this : (Tt.next = this, this.prev = Tt), Tt = this;
	}
	#d() {
		if (this.is_fork) return !0;
		for (let e of this.#r.keys()) if (!this.#f(e)) return !0;
		return !1;
	}
	#f(e) {
		for (var t = e; t !== null; t = t.parent) if (this.#c.has(t)) return !0;
		return !1;
	}
	skip_effect(e) {
		this.#c.has(e) || this.#c.set(e, {
			d: [],
			m: []
		}), this.#l.delete(e);
	}
	unskip_effect(e, t = (e) => this.schedule(e)) {
		var n = this.#c.get(e);
		if (n) {
			this.#c.delete(e);
			for (var r of n.d) at(r, y), t(r);
			for (r of n.m) at(r, b), t(r);
		}
		this.#l.add(e);
	}
	#p() {
		var e = [];
		for (let i of this.#a) if (!(i.f & 16384 || !(i.f & 6144))) {
			for (var t = i, n = !1; t.parent !== null;) {
				t = t.parent;
				var r = t.f;
				if (r & 96) {
					if (!(r & 1024)) {
						n = !0;
						break;
					}
					t.f ^= v;
				}
			}
			n || e.push(t);
		}
		return this.#a = [], e;
	}
	#m() {
		this.started = !0;
		for (let [e, t] of this.#s) at(e, t), this.schedule(e);
		this.apply();
		for (var t = jt = [], n = [], r = Mt = []; this.#a.length > 0;) {
			Nt++ > 1e3 && (this.#b(), Lt());
			for (let e of this.#p()) try {
				this.#h(e, t, n);
			} catch (t) {
				throw Ht(e), this.#d() || this.discard(), t;
			}
		}
		if (j = null, r.length > 0) {
			var i = e.ensure();
			for (let e of r) i.schedule(e);
		}
		if (jt = null, Mt = null, this.#d()) {
			this.#y(n), this.#y(t);
			for (let [e, t] of this.#c) Vt(e, t);
			r.length > 0 && j.#m();
			return;
		}
		let a = this.#g();
		if (a) this.#y(n), this.#y(t), a.#v(this);
		else {
			this.#s.clear();
			for (let e of this.#e) e(this);
			this.#e.clear(), Et = this, zt(n), zt(t), Et = null, this.#i?.resolve();
			var o = j;
			this.#n === 0 && (this.#a.length === 0 || o !== null) && this.#b(), o !== null && (Wt.clear(), o.#m());
		}
	}
	#h(e, t, n) {
		e.f ^= v;
		for (var r = e.first; r !== null;) {
			var i = r.f, a = !!(i & 96);
			if (!(a && i & 1024 || i & 8192 || this.#c.has(r)) && r.fn !== null) {
				a ? r.f ^= v : i & 4 ? t.push(r) : ar(r) && (i & 16 && this.add_dirty_reaction(r, b), dr(r));
				var o = r.first;
				if (o !== null) {
					r = o;
					continue;
				}
			}
			for (; r !== null;) {
				var s = r.next;
				if (s !== null) {
					r = s;
					break;
				}
				r = r.parent;
			}
		}
	}
	#g() {
		for (var e = this.prev; e !== null; e = e.prev) if (!e.is_fork && this.#_(e)) return e;
		return null;
	}
	#_(e) {
		for (let [t, [, n]] of this.current) if (!n && e.current.has(t)) return !0;
		return !1;
	}
	#v(e) {
		for (let [t, n] of e.current) !this.previous.has(t) && e.previous.has(t) && this.previous.set(t, e.previous.get(t)), this.current.set(t, n);
		for (let [t, n] of e.async_deriveds) {
			let e = this.async_deriveds.get(t);
			e && n.promise.then(e.resolve).catch(e.reject);
		}
		e.async_deriveds.clear(), this.transfer_reactions(e.#s);
		let t = (e) => {
			var n = e.reactions;
			if (n !== null && !(e.f & 2 && !(e.f & 6144))) for (let e of n) {
				var r = e.f;
				if (r & 2) t(e);
				else {
					var i = e;
					r & 4194320 && !this.async_deriveds.has(i) && (this.#s.delete(i), at(i, y), this.schedule(i));
				}
			}
		};
		for (let e of this.current.keys()) t(e);
		this.oncommit(() => e.discard()), e.#b(), j = this, this.#m();
	}
	#y(e) {
		for (var t = 0; t < e.length; t += 1) st(e[t], this.#s);
	}
	capture(e, t, n = !1) {
		e.v !== _e && !this.previous.has(e) && this.previous.set(e, e.v), e.f & 8388608 || (this.current.set(e, [t, n]), Dt?.set(e, t)), this.is_fork || (e.v = t);
	}
	activate() {
		j = this;
	}
	deactivate() {
		j = null, Dt = null;
	}
	flush() {
		try {
			At = !0, j = this, this.#m();
		} finally {
			Nt = 0, Ot = null, jt = null, Mt = null, At = !1, j = null, Dt = null, Wt.clear();
		}
	}
	discard() {
		for (let e of this.#t) e(this);
		this.#t.clear();
		for (let e of this.async_deriveds.values()) e.reject(_t);
		this.#b(), this.#i?.resolve();
	}
	register_created_effect(e) {
		this.#o.push(e);
	}
	increment(e, t) {
		if (this.#n += 1, e) {
			let e = this.#r.get(t) ?? 0;
			this.#r.set(t, e + 1);
		}
	}
	decrement(e, t) {
		if (--this.#n, e) {
			let e = this.#r.get(t) ?? 0;
			e === 1 ? this.#r.delete(t) : this.#r.set(t, e - 1);
		}
		this.#u || (this.#u = !0, nt(() => {
			this.#u = !1, this.linked && this.flush();
		}));
	}
	transfer_reactions(e) {
		for (let [t, n] of e) this.add_dirty_reaction(t, n);
		e.clear();
	}
	add_dirty_reaction(e, t) {
		(t === 2048 || this.#s.get(e) !== 2048) && this.#s.set(e, t);
	}
	oncommit(e) {
		this.#e.add(e);
	}
	ondiscard(e) {
		this.#t.add(e);
	}
	settled() {
		return (this.#i ??= g()).promise;
	}
	static ensure() {
		if (j === null) {
			let t = j = new e();
			!At && !kt && nt(() => {
				t.started || t.flush();
			});
		}
		return j;
	}
	apply() {
		Dt = null;
	}
	schedule(e) {
		Ot = e, e.b?.is_pending && e.f & 16777228 && !(e.f & 32768) ? e.b.defer_effect(e) : this.#a.push(e);
	}
	#b() {
		if (this.linked) {
			var e = this.prev, t = this.next;
			e === null || (e.next = t), t === null ? Tt = e : t.prev = e, this.linked = !1;
		}
	}
};
function It(e) {
	var t = kt, n = Et;
	Et = null, kt = !0;
	try {
		var r;
		for (e && (It(), r = e());;) {
			if (rt(), j === null) return r;
			j.flush();
		}
	} finally {
		kt = t, Et = n;
	}
}
function Lt() {
	try {
		Re();
	} catch (e) {
		_n(e, Ot);
	}
}
var Rt = null;
function zt(e) {
	var t = e.length;
	if (t !== 0) {
		for (var n = 0; n < t;) {
			var r = e[n++];
			if (!(r.f & 24576) && ar(r) && (Rt = /* @__PURE__ */ new Set(), dr(r), r.deps === null && r.first === null && r.nodes === null && r.teardown === null && r.ac === null && In(r), Rt?.size > 0)) {
				Wt.clear();
				for (let e of Rt) {
					if (e.f & 24576) continue;
					let t = [e], n = e.parent;
					for (; n !== null;) Rt.has(n) && (Rt.delete(n), t.push(n)), n = n.parent;
					for (let e = t.length - 1; e >= 0; e--) {
						let n = t[e];
						n.f & 24576 || dr(n);
					}
				}
				Rt.clear();
			}
		}
		Rt = null;
	}
}
function Bt(e) {
	j.schedule(e);
}
function Vt(e, t) {
	if (!(e.f & 32 && e.f & 1024)) {
		e.f & 2048 ? t.d.push(e) : e.f & 4096 && t.m.push(e), at(e, v);
		for (var n = e.first; n !== null;) Vt(n, t), n = n.next;
	}
}
function Ht(e) {
	at(e, v);
	for (var t = e.first; t !== null;) Ht(t), t = t.next;
}
// node_modules/svelte/src/internal/client/reactivity/sources.js
var Ut = /* @__PURE__ */ new Set(), Wt = /* @__PURE__ */ new Map(), Gt = !1;
function Kt(e, t) {
	return {
		f: 0,
		v: e,
		reactions: null,
		equals: ke,
		rv: 0,
		wv: 0
	};
}
/*#__NO_SIDE_EFFECTS__*/
function M(e, t) {
	let n = Kt(e, t);
	return Yn(n), n;
}
/*#__NO_SIDE_EFFECTS__*/
function qt(e, t = !1, n = !0) {
	let r = Kt(e);
	return t || (r.equals = je), r;
}
function N(e, t, n = !1) {
	return z !== null && (!Gn || z.f & 131072) && $e() && z.f & 4325394 && (Jn === null || !Jn.has(e)) && He(), Xt(e, n ? en(t) : t, Mt);
}
var Jt = null, Yt = 0;
function Xt(e, t, n = null) {
	if (!e.equals(t)) {
		Un ? Wt.set(e, t) : Wt.has(e) || Wt.set(e, e.v);
		var r = Ft.ensure();
		if (r.capture(e, t), e.f & 2) {
			let t = e;
			e.f & 2048 && xt(t), Dt === null && ot(t);
		}
		e.wv = ir(), Jt = null, Yt = 0, $t(e, y, n), Jt = null, $e() && B !== null && B.f & 1024 && !(B.f & 96) && (Qn === null ? $n([e]) : Qn.push(e)), !r.is_fork && Ut.size > 0 && !Gt && Zt();
	}
	return t;
}
function Zt() {
	Gt = !1;
	for (let e of Ut) {
		e.f & 1024 && at(e, b);
		let t;
		try {
			t = ar(e);
		} catch {
			t = !0;
		}
		t && dr(e);
	}
	Ut.clear();
}
function Qt(e) {
	N(e, e.v + 1);
}
function $t(e, t, n) {
	var r = e.reactions;
	if (r !== null) {
		var i = $e(), a = r.length;
		if (Yt += a, Yt > 1e5 && Jt === null && (Jt = /* @__PURE__ */ new Set()), Jt !== null) {
			if (Jt.has(e)) return;
			Jt.add(e);
		}
		for (var o = 0; o < a; o++) {
			var s = r[o], c = s.f;
			if (i || s !== B) {
				var l = (c & y) === 0;
				if (l && at(s, t), c & 131072) Ut.add(s);
				else if (c & 2) {
					var u = s;
					Dt?.delete(u), $t(u, b, n);
				} else if (l) {
					var d = s;
					c & 16 && Rt !== null && Rt.add(d), n === null ? Bt(d) : n.push(d);
				}
			}
		}
	}
}
function en(e) {
	if (typeof e != "object" || !e || ae in e || oe in e) return e;
	let t = f(e);
	if (t !== u && t !== d) return e;
	var n = /* @__PURE__ */ new Map(), i = r(e), a = /* @__PURE__ */ M(0), o = null, s = nr, l = (e) => {
		if (nr === s) return e();
		var t = z, n = nr;
		Kn(null), rr(s);
		var r = e();
		return Kn(t), rr(n), r;
	};
	return i && n.set("length", /* @__PURE__ */ M(e.length, o)), new Proxy(e, {
		defineProperty(e, t, r) {
			"value" in r && r.configurable !== !1 && r.enumerable !== !1 && r.writable !== !1 || Be();
			var i = n.get(t);
			return i === void 0 ? l(() => {
				var e = /* @__PURE__ */ M(r.value, o);
				return n.set(t, e), e;
			}) : N(i, r.value, !0), !0;
		},
		deleteProperty(e, t) {
			var r = n.get(t);
			if (r === void 0) {
				if (t in e) {
					let e = l(() => /* @__PURE__ */ M(_e, o));
					n.set(t, e), Qt(a);
				}
			} else N(r, _e), Qt(a);
			return !0;
		},
		get(t, r, i) {
			if (r === ae) return e;
			var a = n.get(r), s = r in t;
			if (a === void 0 && (!s || c(t, r)?.writable) && (a = l(() => /* @__PURE__ */ M(en(s ? t[r] : _e), o)), n.set(r, a)), a !== void 0) {
				var u = V(a);
				return u === _e ? void 0 : u;
			}
			return Reflect.get(t, r, i);
		},
		getOwnPropertyDescriptor(e, t) {
			this.has?.(e, t);
			var r = Reflect.getOwnPropertyDescriptor(e, t), i = n.get(t);
			if (i !== void 0) {
				var a = V(i);
				if (a === _e) return;
				if (r && "value" in r) r.value = a;
				else return {
					enumerable: !0,
					configurable: !0,
					value: a,
					writable: !0
				};
			}
			return r;
		},
		has(e, t) {
			if (t === ae) return !0;
			var r = n.get(t), i = r !== void 0 && r.v !== _e || Reflect.has(e, t);
			return (r !== void 0 || (B !== null || z !== null) && (!i || c(e, t)?.writable)) && (r === void 0 && (r = l(() => /* @__PURE__ */ M(i ? en(e[t]) : _e, o)), n.set(t, r)), V(r) === _e) ? !1 : i;
		},
		set(e, t, r, s) {
			var u = n.get(t), d = t in e;
			if (i && t === "length") for (var f = r; f < u.v; f += 1) {
				var p = n.get(f + "");
				p === void 0 ? f in e && (p = l(() => /* @__PURE__ */ M(_e, o)), n.set(f + "", p)) : N(p, _e);
			}
			if (u === void 0) (!d || c(e, t)?.writable) && (u = l(() => /* @__PURE__ */ M(void 0, o)), N(u, en(r)), n.set(t, u));
			else {
				d = u.v !== _e;
				var m = l(() => en(r));
				N(u, m);
			}
			var h = Reflect.getOwnPropertyDescriptor(e, t);
			if (h?.set && h.set.call(s, r), !d) {
				if (i && typeof t == "string") {
					var g = n.get("length"), _ = Number(t);
					Number.isInteger(_) && _ >= g.v && N(g, _ + 1);
				}
				Qt(a);
			}
			return !0;
		},
		ownKeys(e) {
			V(a);
			var t = Reflect.ownKeys(e).filter((e) => {
				var t = n.get(e);
				return t === void 0 || t.v !== _e;
			});
			for (var [r, i] of n) i.v !== _e && !(r in e) && t.push(r);
			return t;
		},
		setPrototypeOf() {
			Ve();
		}
	});
}
function tn(e) {
	try {
		if (typeof e == "object" && e && ae in e) return e[ae];
	} catch {}
	return e;
}
function nn(e, t) {
	return Object.is(tn(e), tn(t));
}
var rn, an, on, sn;
function cn() {
	if (rn === void 0) {
		rn = window, an = /Firefox/.test(navigator.userAgent);
		var e = Element.prototype, t = Node.prototype, n = Text.prototype;
		on = c(t, "firstChild").get, sn = c(t, "nextSibling").get, p(e) && (e[ue] = void 0, e[le] = null, e[de] = void 0, e.__e = void 0), p(n) && (n[fe] = void 0);
	}
}
function ln(e = "") {
	return document.createTextNode(e);
}
/*@__NO_SIDE_EFFECTS__*/
function un(e) {
	return on.call(e);
}
/*@__NO_SIDE_EFFECTS__*/
function dn(e) {
	return sn.call(e);
}
function P(e, t) {
	if (!D) return /* @__PURE__ */ un(e);
	var n = /* @__PURE__ */ un(O);
	if (n === null) n = O.appendChild(ln());
	else if (t && n.nodeType !== 3) {
		var r = ln();
		return n?.before(r), we(r), r;
	}
	return t && hn(n), we(n), n;
}
function F(e, t = !1) {
	if (!D) {
		var n = /* @__PURE__ */ un(e);
		return n instanceof Comment && n.data === "" ? /* @__PURE__ */ dn(n) : n;
	}
	if (t) {
		if (O?.nodeType !== 3) {
			var r = ln();
			return O?.before(r), we(r), r;
		}
		hn(O);
	}
	return O;
}
function I(e, t = !1) {
	if (!D) return /* @__PURE__ */ un(e);
	var n = P(e, t);
	return k(e), n;
}
function L(e, t = 1, n = !1) {
	let r = D ? O : e;
	for (var i; t--;) i = r, r = /* @__PURE__ */ dn(r);
	if (!D) return r;
	if (n) {
		if (r?.nodeType !== 3) {
			var a = ln();
			return r === null ? i?.after(a) : r.before(a), we(a), a;
		}
		hn(r);
	}
	return we(r), r;
}
function fn(e) {
	e.textContent = "";
}
function pn() {
	return !1;
}
function mn(e, t, n) {
	return t == null || t === "http://www.w3.org/1999/xhtml" ? n ? document.createElement(e, { is: n }) : document.createElement(e) : n ? document.createElementNS(t, e, { is: n }) : document.createElementNS(t, e);
}
function hn(e) {
	if (e.nodeValue.length < 65536) return;
	let t = e.nextSibling;
	for (; t !== null && t.nodeType === 3;) t.remove(), e.nodeValue += t.nodeValue, t = e.nextSibling;
}
function gn(e) {
	var t = B;
	if (t === null) return z.f |= ie, e;
	if (!(t.f & 32768) && !(t.f & 4)) throw e;
	_n(e, t);
}
function _n(e, t) {
	if (e === ge) throw e;
	if (!(t !== null && t.f & 16384)) {
		for (; t !== null;) {
			if (t.f & 128 && !(t.f & 33570816)) {
				if (!(t.f & 32768)) throw e;
				try {
					t.b.error(e);
					return;
				} catch (t) {
					e = t;
				}
			}
			t = t.parent;
		}
		throw e;
	}
}
// node_modules/svelte/src/internal/client/reactivity/effects.js
function vn(e) {
	B === null && (z === null && Le(e), Ie()), Un && Fe(e);
}
function yn(e, t) {
	var n = t.last;
	n === null ? t.last = t.first = e : (n.next = e, e.prev = n, t.last = e);
}
function bn(e, t) {
	var n = B;
	n !== null && n.f & 8192 && (e |= x);
	var r = {
		ctx: Ke,
		deps: null,
		nodes: null,
		f: e | y | 512,
		first: null,
		fn: t,
		last: null,
		next: null,
		parent: n,
		b: n && n.b,
		prev: null,
		teardown: null,
		wv: 0,
		ac: null
	};
	j?.register_created_effect(r);
	var i = r;
	if (e & 4) jt === null ? Ft.ensure().schedule(r) : jt.push(r);
	else if (t !== null) {
		try {
			dr(r);
		} catch (e) {
			throw Pn(r), e;
		}
		i.deps === null && i.teardown === null && i.nodes === null && i.first === i.last && !(i.f & 524288) && (i = i.first, e & 16 && e & 65536 && i !== null && (i.f |= T));
	}
	if (i !== null && (i.parent = n, n !== null && yn(i, n), z !== null && z.f & 2 && !(e & 64))) {
		var a = z;
		(a.effects ??= []).push(i);
	}
	return r;
}
function xn() {
	return z !== null && !Gn;
}
function Sn(e) {
	let t = bn(8, null);
	return at(t, v), t.teardown = e, t;
}
function Cn(e) {
	vn("$effect");
	var t = B.f;
	if (!z && t & 32 && Ke !== null && !Ke.i) {
		var n = Ke;
		(n.e ??= []).push(e);
	} else return wn(e);
}
function wn(e) {
	return bn(4 | ee, e);
}
function Tn(e) {
	Ft.ensure();
	let t = bn(64 | E, e);
	return (e = {}) => new Promise((n) => {
		e.outro ? Ln(t, () => {
			Pn(t), n(void 0);
		}) : (Pn(t), n(void 0));
	});
}
function En(e) {
	return bn(4, e);
}
function Dn(e) {
	return bn(re | E, e);
}
function On(e, t = 0) {
	return bn(8 | t, e);
}
function R(e, t = [], n = [], r = []) {
	ft(r, t, n, (t) => {
		bn(8, () => {
			e(...t.map(V));
		});
	});
}
function kn(e, t = 0) {
	return bn(16 | t, e);
}
function An(e) {
	return bn(32 | E, e);
}
function jn(e) {
	var t = e.teardown;
	if (t !== null) {
		let n = Un, r = z;
		Wn(!0), Kn(null);
		try {
			t.call(null);
		} catch (t) {
			_n(t, e.parent);
		} finally {
			Wn(n), Kn(r);
		}
	}
}
function Mn(e, t = !1) {
	var n = e.first;
	for (e.first = e.last = null; n !== null;) {
		let e = n.ac;
		e !== null && ut(() => {
			e.abort(me);
		});
		var r = n.next;
		n.f & 64 ? n.parent = null : Pn(n, t), n = r;
	}
}
function Nn(e) {
	for (var t = e.first; t !== null;) {
		var n = t.next;
		t.f & 32 || Pn(t), t = n;
	}
}
function Pn(e, t = !0) {
	var n = !1;
	(t || e.f & 262144) && e.nodes !== null && e.nodes.end !== null && (Fn(e.nodes.start, e.nodes.end), n = !0), e.f |= w, Mn(e, t && !n), ur(e, 0);
	var r = e.nodes && e.nodes.t;
	if (r !== null) for (let e of r) e.stop();
	jn(e), e.f ^= w, e.f |= S;
	var i = e.parent;
	i !== null && i.first !== null && In(e), e.next = e.prev = e.teardown = e.ctx = e.deps = e.fn = e.nodes = e.ac = e.b = null;
}
function Fn(e, t) {
	for (; e !== null;) {
		var n = e === t ? null : /* @__PURE__ */ dn(e);
		e.remove(), e = n;
	}
}
function In(e) {
	var t = e.parent, n = e.prev, r = e.next;
	n !== null && (n.next = r), r !== null && (r.prev = n), t !== null && (t.first === e && (t.first = r), t.last === e && (t.last = n));
}
function Ln(e, t, n = !0) {
	var r = [];
	e.f |= 256, Rn(e, r, !0);
	var i = () => {
		n && Pn(e), t && t();
	}, a = r.length;
	if (a > 0) {
		var o = () => --a || i();
		for (var s of r) s.out(o);
	} else i();
}
function Rn(e, t, n) {
	if (!(e.f & 8192)) {
		e.f ^= x;
		var r = e.nodes && e.nodes.t;
		if (r !== null) for (let e of r) (e.is_global || n) && t.push(e);
		for (var i = e.first; i !== null;) {
			var a = i.next;
			if (!(i.f & 64)) {
				var o = !!(i.f & 65536) || !!(i.f & 32) && !!(e.f & 16);
				Rn(i, t, o ? n : !1);
			}
			i = a;
		}
	}
}
function zn(e) {
	e.f &= -257, Bn(e, !0);
}
function Bn(e, t) {
	if (!(e.f & 256) && e.f & 8192) {
		e.f ^= x, e.f & 1024 || (at(e, y), Ft.ensure().schedule(e));
		for (var n = e.first; n !== null;) {
			var r = n.next, i = !!(n.f & 65536) || !!(n.f & 32);
			Bn(n, i ? t : !1), n = r;
		}
		var a = e.nodes && e.nodes.t;
		if (a !== null) for (let e of a) (e.is_global || t) && e.in();
	}
}
function Vn(e, t) {
	if (e.nodes) for (var n = e.nodes.start, r = e.nodes.end; n !== null;) {
		var i = n === r ? null : /* @__PURE__ */ dn(n);
		t.append(n), n = i;
	}
}
// node_modules/svelte/src/internal/client/legacy.js
var Hn = null, Un = !1;
function Wn(e) {
	Un = e;
}
var z = null, Gn = !1;
function Kn(e) {
	z = e;
}
var B = null;
function qn(e) {
	B = e;
}
var Jn = null;
function Yn(e) {
	z !== null && (z.f & 2097152 || z.f & 2) && (Jn ??= /* @__PURE__ */ new Set()).add(e);
}
var Xn = null, Zn = 0, Qn = null;
function $n(e) {
	Qn = e;
}
var er = 1, tr = 0, nr = tr;
function rr(e) {
	nr = e;
}
function ir() {
	return ++er;
}
function ar(e) {
	var t = e.f;
	if (t & 2048) return !0;
	if (t & 4096) {
		for (var n = e.deps, r = n.length, i = 0; i < r; i++) {
			var a = n[i];
			if (ar(a) && St(a), a.wv > e.wv) return !0;
		}
		t & 512 && Dt === null && at(e, v);
	}
	return !1;
}
function or(e, t, n = !0) {
	var r = e.reactions;
	if (r !== null && !(Jn !== null && Jn.has(e))) for (var i = 0; i < r.length; i++) {
		var a = r[i];
		a.f & 2 ? or(a, t, !1) : t === a && (n ? at(a, y) : a.f & 1024 && at(a, b), Bt(a));
	}
}
function sr(e) {
	var t = Xn, n = Zn, r = Qn, i = z, a = Jn, o = Ke, s = Gn, c = nr, l = e.f;
	Xn = null, Zn = 0, Qn = null, z = l & 96 ? null : e, Jn = null, qe(e.ctx), Gn = !1, nr = ++tr, e.ac !== null && (ut(() => {
		e.ac.abort(me);
	}), e.ac = null);
	try {
		e.f |= ne;
		var u = e.fn, d = u();
		e.f |= C;
		var f = cr(e);
		if ($e() && Qn !== null && !Gn && f !== null && !(e.f & 6146)) for (var p = 0; p < Qn.length; p++) or(Qn[p], e);
		if (i !== null && i !== e) {
			if (tr++, i.deps !== null) for (let e = 0; e < n; e += 1) i.deps[e].rv = tr;
			if (t !== null) for (let e of t) e.rv = tr;
			Qn !== null && (r === null ? r = Qn : r.push(...Qn));
		}
		return e.f & 8388608 && (e.f ^= ie), d;
	} catch (t) {
		return cr(e), gn(t);
	} finally {
		e.f ^= ne, Xn = t, Zn = n, Qn = r, z = i, Jn = a, qe(o), Gn = s, nr = c;
	}
}
function cr(e) {
	var t = e.deps, n = j?.is_fork;
	if (Xn !== null) {
		var r;
		if (n || ur(e, Zn), t !== null && Zn > 0) for (t.length = Zn + Xn.length, r = 0; r < Xn.length; r++) t[Zn + r] = Xn[r];
		else e.deps = t = Xn;
		if (xn() && e.f & 512) for (r = Zn; r < t.length; r++) (t[r].reactions ??= []).push(e);
	} else !n && t !== null && Zn < t.length && (ur(e, Zn), t.length = Zn);
	return t;
}
function lr(e, t) {
	let n = t.reactions;
	if (n !== null) {
		var r = i.call(n, e);
		if (r !== -1) {
			var o = n.length - 1;
			o === 0 ? n = t.reactions = null : (n[r] = n[o], n.pop());
		}
	}
	if (n === null && t.f & 2 && (Xn === null || !a.call(Xn, t))) {
		var s = t;
		s.f & 512 && (s.f ^= 512), s.v !== _e && ot(s), s.ac !== null && ut(() => {
			s.ac.abort(me), s.ac = null, at(s, y);
		}), Ct(s), ur(s, 0);
	}
}
function ur(e, t) {
	var n = e.deps;
	if (n !== null) for (var r = t; r < n.length; r++) lr(e, n[r]);
}
function dr(e) {
	var t = e.f;
	if (!(t & 16384)) {
		at(e, v);
		var n = B;
		B = e;
		try {
			t & 16777232 ? Nn(e) : Mn(e), jn(e);
			var r = sr(e);
			e.teardown = typeof r == "function" ? r : null, e.wv = er;
		} finally {
			B = n;
		}
	}
}
async function fr() {
	await Promise.resolve(), It();
}
function V(e) {
	var t = !!(e.f & 2);
	if (Hn?.add(e), z !== null && !Gn && !(B !== null && B.f & 16384) && (Jn === null || !Jn.has(e))) {
		var n = z.deps;
		if (z.f & 2097152) e.rv < tr && (e.rv = tr, Xn === null && n !== null && n[Zn] === e ? Zn++ : Xn === null ? Xn = [e] : Xn.push(e));
		else {
			z.deps ??= [], a.call(z.deps, e) || z.deps.push(e);
			var r = e.reactions;
			r === null ? e.reactions = [z] : a.call(r, z) || r.push(z);
		}
	}
	if (Un && Wt.has(e)) return Wt.get(e);
	if (t) {
		var i = e;
		if (Un) {
			var o = i.v;
			return (!(i.f & 1024) && i.reactions !== null || mr(i)) && (o = xt(i)), Wt.set(i, o), o;
		}
		var s = !(i.f & 512) && !Gn && z !== null && !!(z.f & 512), c = (i.f & C) === 0;
		ar(i) && (s && (i.f |= 512), St(i)), s && !c && (wt(i), pr(i));
	}
	if (Dt?.has(e)) return Dt.get(e);
	if (e.f & 8388608) throw e.v;
	return e.v;
}
function pr(e) {
	if (e.f |= 512, e.deps !== null) for (let n of e.deps) {
		var t = n.reactions;
		t === null ? n.reactions = [e] : a.call(t, e) || t.push(e), n.f & 2 && !(n.f & 512) && (wt(n), pr(n));
	}
}
function mr(e) {
	if (e.v === _e) return !0;
	if (e.deps === null) return !1;
	for (let t of e.deps) if (Wt.has(t) || t.f & 2 && mr(t)) return !0;
	return !1;
}
function hr(e) {
	var t = Gn;
	try {
		return Gn = !0, e();
	} finally {
		Gn = t;
	}
}
[.../* @__PURE__ */ "allowfullscreen.async.autofocus.autoplay.checked.controls.default.disabled.formnovalidate.indeterminate.inert.ismap.loop.multiple.muted.nomodule.novalidate.open.playsinline.readonly.required.reversed.seamless.selected.webkitdirectory.defer.disablepictureinpicture.disableremoteplayback".split(".")];
var gr = ["touchstart", "touchmove"];
function _r(e) {
	return gr.includes(e);
}
// node_modules/svelte/src/internal/client/dom/elements/events.js
var vr = Symbol("events"), yr = /* @__PURE__ */ new Set(), br = /* @__PURE__ */ new Set();
function xr(e, t, n, r = {}) {
	function i(e) {
		if (r.capture || Er.call(t, e), !e.cancelBubble) return ut(() => n?.call(this, e));
	}
	return e.startsWith("pointer") || e.startsWith("touch") || e === "wheel" ? (i.__removed = !1, nt(() => {
		i.__removed || t.addEventListener(e, i, r);
	})) : t.addEventListener(e, i, r), i;
}
function Sr(e, t, n, r, i) {
	var a = {
		capture: r,
		passive: i
	}, o = xr(e, t, n, a);
	(t === document.body || t === window || t === document || t instanceof HTMLMediaElement) && Sn(() => {
		o.__removed = !0, t.removeEventListener(e, o, a);
	});
}
function H(e, t, n) {
	(t[vr] ??= {})[e] = n;
}
function Cr(e) {
	for (var t = 0; t < e.length; t++) yr.add(e[t]);
	for (var n of br) n(e);
}
var wr = null, Tr = !1;
function Er(e) {
	var t = this, n = t.ownerDocument, r = e.type, i = e.composedPath?.() || [], a = i[0] || e.target;
	wr = e, Tr || (Tr = !0, setTimeout(() => {
		Tr = !1, wr = null;
	}));
	var o = 0, c = wr === e && e[vr];
	if (c) {
		var l = i.indexOf(c);
		if (l !== -1 && (t === document || t === window)) {
			e[vr] = t;
			return;
		}
		var u = i.indexOf(t);
		if (u === -1) return;
		l <= u && (o = l);
	}
	if (a = i[o] || e.target, a !== t) {
		s(e, "currentTarget", {
			configurable: !0,
			get() {
				return a || n;
			}
		});
		var d = z, f = B;
		Kn(null), qn(null);
		try {
			for (var p, m = []; a !== null && a !== t;) {
				try {
					var h = a[vr]?.[r];
					h == null || a.disabled && e.target !== a || h.call(a, e);
				} catch (e) {
					p ? m.push(e) : p = e;
				}
				if (e.cancelBubble) break;
				o++, a = o < i.length ? i[o] : null;
			}
			if (p) {
				for (let e of m) queueMicrotask(() => {
					throw e;
				});
				throw p;
			}
		} finally {
			e[vr] = t, delete e.currentTarget, Kn(d), qn(f);
		}
	}
}
// node_modules/svelte/src/internal/client/dom/reconciler.js
var Dr = globalThis?.window?.trustedTypes && /* @__PURE__ */ globalThis.window.trustedTypes.createPolicy("svelte-trusted-html", { createHTML: (e) => e });
function Or(e) {
	return Dr?.createHTML(e) ?? e;
}
function kr(e) {
	var t = mn("template");
	return t.innerHTML = Or(e.replaceAll("<!>", "<!---->")), t.content;
}
// node_modules/svelte/src/internal/client/dom/template.js
function Ar(e, t) {
	var n = B;
	n.nodes === null && (n.nodes = {
		start: e,
		end: t,
		a: null,
		t: null
	});
}
/*#__NO_SIDE_EFFECTS__*/
function U(e, t) {
	var n = !!(t & 1), r = !!(t & 2), i, a = !e.startsWith("<!>");
	return () => {
		if (D) return Ar(O, null), O;
		i === void 0 && (i = kr(a ? e : "<!>" + e), n || (i = /* @__PURE__ */ un(i)));
		var t = r || an ? document.importNode(i, !0) : i.cloneNode(!0);
		if (n) {
			var o = /* @__PURE__ */ un(t), s = t.lastChild;
			Ar(o, s);
		} else Ar(t, t);
		return t;
	};
}
/*#__NO_SIDE_EFFECTS__*/
function jr(e, t, n = "svg") {
	var r = !e.startsWith("<!>"), i = !!(t & 1), a = `<${n}>${r ? e : "<!>" + e}</${n}>`, o;
	return () => {
		if (D) return Ar(O, null), O;
		if (!o) {
			var e = /* @__PURE__ */ un(kr(a));
			if (i) for (o = document.createDocumentFragment(); /* @__PURE__ */ un(e);) o.appendChild(/* @__PURE__ */ un(e));
			else o = /* @__PURE__ */ un(e);
		}
		var t = o.cloneNode(!0);
		if (i) {
			var n = /* @__PURE__ */ un(t), r = t.lastChild;
			Ar(n, r);
		} else Ar(t, t);
		return t;
	};
}
/*#__NO_SIDE_EFFECTS__*/
function W(e, t) {
	return /* @__PURE__ */ jr(e, t, "svg");
}
function Mr(e = "") {
	if (!D) {
		var t = ln(e + "");
		return Ar(t, t), t;
	}
	var n = O;
	return n.nodeType === 3 ? hn(n) : (n.before(n = ln()), we(n)), Ar(n, n), n;
}
function Nr() {
	if (D) return Ar(O, null), O;
	var e = document.createDocumentFragment(), t = document.createComment(""), n = ln();
	return e.append(t, n), Ar(t, n), e;
}
function G(e, t) {
	if (D) {
		var n = B;
		n.f & 32768 && n.nodes.end !== null || (n.nodes.end = O), Te();
	} else e !== null && e.before(t);
}
// node_modules/svelte/src/reactivity/create-subscriber.js
function Pr(e) {
	let t = 0, n = Kt(0), r;
	return () => {
		xn() && (V(n), On(() => (t === 0 && (r = hr(() => e(() => Qt(n)))), t += 1, () => {
			nt(() => {
				--t, t === 0 && (r?.(), r = void 0, Qt(n));
			});
		})));
	};
}
// node_modules/svelte/src/internal/client/dom/blocks/boundary.js
var Fr = T | E;
function Ir(e, t, n, r) {
	new Lr(e, t, n, r);
}
var Lr = class {
	parent;
	is_pending = !1;
	transform_error;
	#e;
	#t = D ? O : null;
	#n;
	#r;
	#i;
	#a = null;
	#o = null;
	#s = null;
	#c = null;
	#l = 0;
	#u = 0;
	#d = !1;
	#f = /* @__PURE__ */ new Map();
	#p = null;
	#m = Pr(() => (this.#p = Kt(this.#l), () => {
		this.#p = null;
	}));
	constructor(e, t, n, r) {
		this.#e = e, this.#n = t, this.#r = (e) => {
			var t = B;
			t.b = this, t.f |= 128, n(e);
		}, this.parent = B.b, this.transform_error = r ?? this.parent?.transform_error ?? ((e) => e), this.#i = kn(() => {
			if (D) {
				let e = Oe(this.#t);
				Te();
				let t = e === "[!";
				if (e.startsWith("[?")) {
					let t = JSON.parse(e.slice(2));
					this.#g(t);
				} else t ? this.#y() : this.#h();
			} else this.#b();
		}, Fr), D && (this.#e = O);
	}
	#h() {
		try {
			this.#a = An(() => this.#r(this.#e));
		} catch (e) {
			this.error(e);
		}
	}
	#g(e) {
		let t = this.#n.failed, { reset: n, invoke_onerror: r } = this.#_(e);
		nt(r), t && (this.#s = An(() => {
			t(this.#e, () => e, () => n);
		}));
	}
	#_(e) {
		var t = !1, n = !1;
		let r = () => {
			this.#v() || (t ? Se() : (t = !0, n && Ue(), this.#s !== null && Ln(this.#s, () => {
				this.#s = null;
			}), this.#S(() => {
				this.#b();
			})));
		};
		return {
			reset: r,
			invoke_onerror: () => {
				if (!this.#v()) try {
					n = !0, this.#n.onerror?.(e, r), n = !1;
				} catch (e) {
					_n(e, this.#i && this.#i.parent);
				}
			}
		};
	}
	#v() {
		return (this.#i.f & (S | w)) !== 0;
	}
	#y() {
		let e = this.#n.pending;
		e && (this.is_pending = !0, this.#o = An(() => e(this.#e)), nt(() => {
			if (!this.#v()) {
				var e = this.#c = document.createDocumentFragment(), t = ln(), n = !1;
				e.append(t), this.#a = this.#S(() => {
					try {
						return An(() => this.#r(t));
					} catch (e) {
						try {
							this.error(e), n = !0;
						} catch (e) {
							_n(e, this.#i.parent);
						}
						return null;
					}
				}), this.#a === null ? (this.#c = null, n && this.#x(j)) : this.#u === 0 && (this.#e.before(e), this.#c = null, Ln(this.#o, () => {
					this.#o = null;
				}), this.#x(j));
			}
		}));
	}
	#b() {
		try {
			if (this.is_pending = this.has_pending_snippet(), this.#u = 0, this.#l = 0, this.#a = An(() => {
				this.#r(this.#e);
			}), this.#u > 0) {
				var e = this.#c = document.createDocumentFragment();
				Vn(this.#a, e);
				let t = this.#n.pending;
				this.#o = An(() => t(this.#e));
			} else this.#x(j);
		} catch (e) {
			this.error(e);
		}
	}
	#x(e) {
		this.is_pending = !1, e.transfer_reactions(this.#f);
	}
	defer_effect(e) {
		st(e, this.#f);
	}
	is_rendered() {
		return !this.is_pending && (!this.parent || this.parent.is_rendered());
	}
	has_pending_snippet() {
		return !!this.#n.pending;
	}
	#S(e) {
		var t = B, n = z, r = Ke;
		qn(this.#i), Kn(this.#i), qe(this.#i.ctx);
		try {
			return Ft.ensure(), e();
		} finally {
			qn(t), Kn(n), qe(r);
		}
	}
	#C(e, t) {
		this.has_pending_snippet() ? (this.#u += e, this.#u === 0 && (this.#x(t), this.#o && Ln(this.#o, () => {
			this.#o = null;
		}), this.#c &&= (this.#e.before(this.#c), null))) : this.parent && this.parent.#C(e, t);
	}
	update_pending_count(e, t) {
		this.#C(e, t), this.#l += e, !this.#p || this.#d || (this.#d = !0, nt(() => {
			this.#d = !1, this.#p && Xt(this.#p, this.#l);
		}));
	}
	get_effect_pending() {
		return this.#m(), V(this.#p);
	}
	error(e) {
		if (e === ge || !this.#n.onerror && !this.#n.failed) throw e;
		j?.is_fork ? (this.#a && j.skip_effect(this.#a), this.#o && j.skip_effect(this.#o), this.#s && j.skip_effect(this.#s), j.oncommit(() => {
			this.#v() || this.#w(e);
		})) : this.#w(e);
	}
	#w(e) {
		this.#a &&= (Pn(this.#a), null), this.#o &&= (Pn(this.#o), null), this.#s &&= (Pn(this.#s), null), D && (we(this.#t), Ee(), we(De()));
		let t = this.#n.failed, n = (e) => {
			if (this.#v()) return;
			let { reset: n, invoke_onerror: r } = this.#_(e);
			r(), t && !this.#v() && (this.#s = this.#S(() => {
				try {
					return An(() => {
						var r = B;
						r.b = this, r.f |= 128, t(this.#e, () => e, () => n);
					});
				} catch (e) {
					return _n(e, this.#i.parent), null;
				}
			}));
		};
		nt(() => {
			if (!this.#v()) {
				var t;
				try {
					t = this.transform_error(e);
				} catch (e) {
					_n(e, this.#i && this.#i.parent);
					return;
				}
				typeof t == "object" && t && typeof t.then == "function" ? t.then(n, (e) => _n(e, this.#i && this.#i.parent)) : n(t);
			}
		});
	}
};
function K(e, t) {
	var n = t == null ? "" : typeof t == "object" ? `${t}` : t;
	n !== (e[fe] ??= e.nodeValue) && (e[fe] = n, e.nodeValue = `${n}`);
}
function Rr(e, t) {
	return Br(e, t);
}
var zr = /* @__PURE__ */ new Map();
function Br(e, { target: t, anchor: n, props: r = {}, events: i, context: a, intro: s = !0, transformError: c }) {
	cn();
	var l = void 0, u = Tn(() => {
		var s = n ?? t.appendChild(ln());
		Ir(s, { pending: () => {} }, (t) => {
			Xe({});
			var n = Ke;
			if (a && (n.c = a), i && (r.$$events = i), D && Ar(t, null), l = e(t, r) || Qe(), D && (B.nodes.end = O, O === null || O.nodeType !== 8 || O.data !== "]")) throw be(), ge;
			Ze();
		}, c);
		var u = /* @__PURE__ */ new Set(), d = (e) => {
			for (var n = 0; n < e.length; n++) {
				var r = e[n];
				if (!u.has(r)) {
					u.add(r);
					var i = _r(r);
					for (let e of [t, document]) {
						var a = zr.get(e);
						a === void 0 && (a = /* @__PURE__ */ new Map(), zr.set(e, a));
						var o = a.get(r);
						o === void 0 ? (e.addEventListener(r, Er, { passive: i }), a.set(r, 1)) : a.set(r, o + 1);
					}
				}
			}
		};
		return d(o(yr)), br.add(d), () => {
			for (var e of u) for (let n of [t, document]) {
				var r = zr.get(n), i = r.get(e);
				--i == 0 ? (n.removeEventListener(e, Er), r.delete(e), r.size === 0 && zr.delete(n)) : r.set(e, i);
			}
			br.delete(d), s !== n && s.parentNode?.removeChild(s);
		};
	});
	return Vr.set(l, u), l;
}
var Vr = /* @__PURE__ */ new WeakMap();
function Hr(e, t) {
	let n = Vr.get(e);
	return n ? (Vr.delete(e), n(t)) : Promise.resolve();
}
// node_modules/svelte/src/internal/client/dom/blocks/branches.js
var Ur = class {
	anchor;
	#e = /* @__PURE__ */ new Map();
	#t = /* @__PURE__ */ new Map();
	#n = /* @__PURE__ */ new Map();
	#r = /* @__PURE__ */ new Set();
	#i = !0;
	constructor(e, t = !0) {
		this.anchor = e, this.#i = t;
	}
	#a = (e) => {
		if (this.#e.has(e)) {
			var t = this.#e.get(e), n = this.#t.get(t);
			if (n) zn(n), this.#r.delete(t);
			else {
				var r = this.#n.get(t);
				r && (zn(r.effect), this.#t.set(t, r.effect), this.#n.delete(t), r.fragment.lastChild.remove(), this.anchor.before(r.fragment), n = r.effect);
			}
			for (let [t, n] of this.#e) {
				if (this.#e.delete(t), t === e) break;
				let r = this.#n.get(n);
				r && (Pn(r.effect), this.#n.delete(n));
			}
			for (let [e, r] of this.#t) {
				if (e === t || this.#r.has(e)) continue;
				let i = () => {
					if (Array.from(this.#e.values()).includes(e)) {
						var t = document.createDocumentFragment();
						Vn(r, t), t.append(ln()), this.#n.set(e, {
							effect: r,
							fragment: t
						});
					} else Pn(r);
					this.#r.delete(e), this.#t.delete(e);
				};
				this.#i || !n ? (this.#r.add(e), Ln(r, i, !1)) : i();
			}
		}
	};
	#o = (e) => {
		this.#e.delete(e);
		let t = Array.from(this.#e.values());
		for (let [e, n] of this.#n) t.includes(e) || (Pn(n.effect), this.#n.delete(e));
	};
	ensure(e, t) {
		var n = j, r = pn();
		if (t && !this.#t.has(e) && !this.#n.has(e)) {
			if (r) {
				var i = document.createDocumentFragment(), a = ln();
				i.append(a), this.#n.set(e, {
					effect: An(() => t(a)),
					fragment: i
				});
			} else this.#t.set(e, An(() => t(this.anchor)));
		}
		if (this.#e.set(n, e), r) {
			for (let [t, r] of this.#t) t === e ? n.unskip_effect(r) : n.skip_effect(r);
			for (let [t, r] of this.#n) t === e ? n.unskip_effect(r.effect) : n.skip_effect(r.effect);
			n.oncommit(this.#a), n.ondiscard(this.#o);
		} else D && (this.anchor = O), this.#a(n);
	}
};
// node_modules/svelte/src/internal/client/dom/blocks/if.js
function q(e, t, n = !1) {
	var r;
	D && (r = O, Te());
	var i = new Ur(e), a = n ? T : 0;
	function o(e, t) {
		if (D) {
			var n = Oe(r);
			if (e !== parseInt(n.substring(1))) {
				var a = De();
				we(a), i.anchor = a, Ce(!1), i.ensure(e, t), Ce(!0);
				return;
			}
		}
		i.ensure(e, t);
	}
	kn(() => {
		var e = !1;
		t((t, n = 0) => {
			e = !0, o(n, t);
		}), e || o(-1, null);
	}, a);
}
// node_modules/svelte/src/internal/client/dom/blocks/each.js
function J(e, t) {
	return t;
}
function Wr(e, t, n) {
	for (var r = [], i = t.length, a, s = t.length, c = 0; c < i; c++) {
		let n = t[c];
		Ln(n, () => {
			if (a) {
				if (a.pending.delete(n), a.done.add(n), a.pending.size === 0) {
					var t = e.outrogroups;
					Gr(e, o(a.done)), t.delete(a), t.size === 0 && (e.outrogroups = null);
				}
			} else --s;
		}, !1);
	}
	if (s === 0) {
		var l = r.length === 0 && n !== null && e.pending.size === 0;
		if (l) {
			var u = n, d = u.parentNode;
			fn(d), d.append(u), e.items.clear();
		}
		Gr(e, t, !l);
	} else a = {
		pending: new Set(t),
		done: /* @__PURE__ */ new Set()
	}, (e.outrogroups ??= /* @__PURE__ */ new Set()).add(a);
}
function Gr(e, t, n = !0) {
	var r;
	if (e.pending.size > 0) {
		r = /* @__PURE__ */ new Set();
		for (let t of e.pending.values()) for (let n of t) r.add(e.items.get(n).e);
	}
	for (var i = 0; i < t.length; i++) {
		var a = t[i];
		r?.has(a) ? (a.f |= te, Vn(a, document.createDocumentFragment())) : Pn(t[i], n);
	}
}
var Kr;
function Y(e, t, n, i, a, s = null) {
	var c = e, l = /* @__PURE__ */ new Map();
	if (t & 4) {
		var u = e;
		c = D ? we(/* @__PURE__ */ un(u)) : u.appendChild(ln());
	}
	D && Te();
	var d = null, f = /* @__PURE__ */ yt(() => {
		var e = n();
		return r(e) ? e : e == null ? [] : o(e);
	}), p = /* @__PURE__ */ new Map(), m = !0;
	function h(e) {
		if (!(_.effect.f & 16384)) {
			_.pending.delete(e);
			var n = V(f);
			_.fallback = d, Jr(_, n, c, t, i), d !== null && (n.length === 0 ? d.f & 33554432 ? (d.f ^= te, Xr(d, null, c)) : zn(d) : Ln(d, () => {
				d = null;
			}));
		}
	}
	function g(e) {
		_.pending.delete(e);
	}
	var _ = {
		effect: kn(() => {
			var e = V(f), r = e.length;
			let o = !1;
			D && Oe(c) === "[!" != (r === 0) && (c = De(), we(c), Ce(!1), o = !0);
			for (var u = /* @__PURE__ */ new Set(), _ = j, v = pn(), y = 0; y < r; y += 1) {
				D && O.nodeType === 8 && O.data === "]" && (c = O, o = !0, Ce(!1));
				var b = e[y], x = i(b, y), S = m ? null : l.get(x);
				S ? (S.v && Xt(S.v, b), S.i && Xt(S.i, y), v && _.unskip_effect(S.e)) : (S = Yr(l, m ? c : Kr ??= ln(), b, x, y, a, t, n), m || (S.e.f |= te), l.set(x, S)), u.add(x);
			}
			if (r === 0 && s && !d && (m ? d = An(() => s(c)) : (d = An(() => s(Kr ??= ln())), d.f |= te)), r > u.size && Pe("", "", ""), D && r > 0 && we(De()), !m) {
				if (p.set(_, u), v) {
					for (let [e, t] of l) u.has(e) || _.skip_effect(t.e);
					_.oncommit(h), _.ondiscard(g);
				} else h(_);
			}
			o && Ce(!0), V(f);
		}),
		flags: t,
		items: l,
		pending: p,
		outrogroups: null,
		fallback: d
	};
	m = !1, D && (c = O);
}
function qr(e) {
	for (; e !== null && !(e.f & 32);) e = e.next;
	return e;
}
function Jr(e, t, n, r, i) {
	var a = !!(r & 8), s = t.length, c = e.items, l = qr(e.effect.first), u, d = null, f, p = [], m = [], h, g, _, v;
	if (a) for (v = 0; v < s; v += 1) h = t[v], g = i(h, v), _ = c.get(g).e, _.f & 33554432 || (_.nodes?.a?.measure(), (f ??= /* @__PURE__ */ new Set()).add(_));
	for (v = 0; v < s; v += 1) {
		if (h = t[v], g = i(h, v), _ = c.get(g).e, e.outrogroups !== null) for (let t of e.outrogroups) t.pending.delete(_), t.done.delete(_);
		if (_.f & 8192 && (zn(_), a && (_.nodes?.a?.unfix(), (f ??= /* @__PURE__ */ new Set()).delete(_))), _.f & 33554432) {
			if (_.f ^= te, _ === l) Xr(_, null, n);
			else {
				var y = d ? d.next : l;
				_ === e.effect.last && (e.effect.last = _.prev), _.prev && (_.prev.next = _.next), _.next && (_.next.prev = _.prev), Zr(e, d, _), Zr(e, _, y), Xr(_, y, n), d = _, p = [], m = [], l = qr(d.next);
				continue;
			}
		}
		if (_ !== l) {
			if (u !== void 0 && u.has(_)) {
				if (p.length < m.length) {
					var b = m[0], x;
					d = b.prev;
					var S = p[0], C = p[p.length - 1];
					for (x = 0; x < p.length; x += 1) Xr(p[x], b, n);
					for (x = 0; x < m.length; x += 1) u.delete(m[x]);
					Zr(e, S.prev, C.next), Zr(e, d, S), Zr(e, C, b), l = b, d = C, --v, p = [], m = [];
				} else u.delete(_), Xr(_, l, n), Zr(e, _.prev, _.next), Zr(e, _, d === null ? e.effect.first : d.next), Zr(e, d, _), d = _;
				continue;
			}
			for (p = [], m = []; l !== null && l !== _;) (u ??= /* @__PURE__ */ new Set()).add(l), m.push(l), l = qr(l.next);
			if (l === null) continue;
		}
		_.f & 33554432 || p.push(_), d = _, l = qr(_.next);
	}
	if (e.outrogroups !== null) {
		for (let t of e.outrogroups) t.pending.size === 0 && (Gr(e, o(t.done)), e.outrogroups?.delete(t));
		e.outrogroups.size === 0 && (e.outrogroups = null);
	}
	if (l !== null || u !== void 0) {
		var w = [];
		if (u !== void 0) for (_ of u) _.f & 8192 || w.push(_);
		for (; l !== null;) !(l.f & 8192) && l !== e.fallback && w.push(l), l = qr(l.next);
		var T = w.length;
		if (T > 0) {
			var E = r & 4 && s === 0 ? n : null;
			if (a) {
				for (v = 0; v < T; v += 1) w[v].nodes?.a?.measure();
				for (v = 0; v < T; v += 1) w[v].nodes?.a?.fix();
			}
			Wr(e, w, E);
		}
	}
	a && nt(() => {
		if (f !== void 0) for (_ of f) _.nodes?.a?.apply();
	});
}
function Yr(e, t, n, r, i, a, o, s) {
	var c = o & 1 ? o & 16 ? Kt(n) : /* @__PURE__ */ qt(n, !1, !1) : null, l = o & 2 ? Kt(i) : null;
	return {
		v: c,
		i: l,
		e: An(() => (a(t, c ?? n, l ?? i, s), () => {
			e.delete(r);
		}))
	};
}
function Xr(e, t, n) {
	if (e.nodes) for (var r = e.nodes.start, i = e.nodes.end, a = t && !(t.f & 33554432) ? t.nodes.start : n; r !== null;) {
		var o = /* @__PURE__ */ dn(r);
		if (a.before(r), r === i) return;
		r = o;
	}
}
function Zr(e, t, n) {
	t === null ? e.effect.first = n : t.next = n, n === null ? e.effect.last = t : n.prev = t;
}
// node_modules/svelte/src/internal/client/dom/blocks/snippet.js
function Qr(e, t, ...n) {
	var r = new Ur(e);
	kn(() => {
		let e = t() ?? null;
		r.ensure(e, e && ((t) => e(t, ...n)));
	}, T);
}
// node_modules/svelte/src/internal/shared/attributes.js
var $r = [..." 	\n\r\f\xA0\v﻿"];
function ei(e, t, n) {
	var r = e == null ? "" : "" + e;
	if (t && (r = r ? r + " " + t : t), n) {
		for (var i of Object.keys(n)) if (n[i]) r = r ? r + " " + i : i;
		else if (r.length) for (var a = i.length, o = 0; (o = r.indexOf(i, o)) >= 0;) {
			var s = o + a;
			(o === 0 || $r.includes(r[o - 1])) && (s === r.length || $r.includes(r[s])) ? r = (o === 0 ? "" : r.substring(0, o)) + r.substring(s + 1) : o = s;
		}
	}
	return r === "" ? null : r;
}
function ti(e, t = !1) {
	var n = t ? " !important;" : ";", r = "";
	for (var i of Object.keys(e)) {
		var a = e[i];
		a != null && a !== "" && (r += " " + i + ": " + a + n);
	}
	return r;
}
function ni(e) {
	return e[0] !== "-" || e[1] !== "-" ? e.toLowerCase() : e;
}
function ri(e, t) {
	if (t) {
		var n = "", r, i;
		if (Array.isArray(t) ? (r = t[0], i = t[1]) : r = t, e) {
			e = String(e).replaceAll(/\/\*.*?\*\//g, "").trim();
			var a = !1, o = 0, s = !1, c = [];
			r && c.push(...Object.keys(r).map(ni)), i && c.push(...Object.keys(i).map(ni));
			var l = 0, u = -1;
			let t = e.length;
			for (var d = 0; d < t; d++) {
				var f = e[d];
				if (s ? f === "/" && e[d - 1] === "*" && (s = !1) : a ? a === f && (a = !1) : f === "/" && e[d + 1] === "*" ? s = !0 : f === "\"" || f === "'" ? a = f : f === "(" ? o++ : f === ")" && o--, !s && a === !1 && o === 0) {
					if (f === ":" && u === -1) u = d;
					else if (f === ";" || d === t - 1) {
						if (u !== -1) {
							var p = ni(e.substring(l, u).trim());
							if (!c.includes(p)) {
								f !== ";" && d++;
								var m = e.substring(l, d).trim();
								n += " " + m + ";";
							}
						}
						l = d + 1, u = -1;
					}
				}
			}
		}
		return r && (n += ti(r)), i && (n += ti(i, !0)), n = n.trim(), n === "" ? null : n;
	}
	return e == null ? null : String(e);
}
// node_modules/svelte/src/internal/client/dom/elements/class.js
function ii(e, t, n, r, i, a) {
	var o = e[ue];
	if (D || o !== n || o === void 0) {
		var s = ei(n, r, a);
		D && s === e.getAttribute("class") || (s == null ? e.removeAttribute("class") : t ? e.className = s : e.setAttribute("class", s)), e[ue] = n;
	} else if (a && i !== a) for (var c in a) {
		var l = !!a[c];
		(i == null || l !== !!i[c]) && e.classList.toggle(c, l);
	}
	return a;
}
// node_modules/svelte/src/internal/client/dom/elements/style.js
function ai(e, t = {}, n, r) {
	for (var i in n) {
		var a = n[i];
		t[i] !== a && (n[i] == null ? e.style.removeProperty(i) : e.style.setProperty(i, a, r));
	}
}
function oi(e, t, n, r) {
	var i = e[de];
	if (D || i !== t) {
		var a = ri(t, r);
		D && a === e.getAttribute("style") || (a == null ? e.removeAttribute("style") : e.style.cssText = a), e[de] = t;
	} else r && (Array.isArray(r) ? (ai(e, n?.[0], r[0]), ai(e, n?.[1], r[1], "important")) : ai(e, n, r));
	return r;
}
// node_modules/svelte/src/internal/client/dom/elements/bindings/select.js
function si(e, t) {
	t ? e.hasAttribute("selected") || e.setAttribute("selected", "") : e.removeAttribute("selected");
}
function ci(e, t) {
	var n = e.__defaultValue, i = e.multiple, a = i ? n ?? [] : null;
	if (!i || r(a)) {
		var o = e.selectedIndex, s = t && i ? new Set(e.selectedOptions) : null;
		for (var c of e.options) {
			var l = fi(c);
			si(c, i ? a.includes(l) : nn(l, n));
		}
		if (t) {
			if (s !== null) for (c of e.options) {
				var u = s.has(c);
				c.selected !== u && (c.selected = u);
			}
			else e.selectedIndex !== o && (e.selectedIndex = o);
		}
	}
}
function li(e, t, n = !1) {
	if (e.multiple) {
		if (t == null) return;
		if (!r(t)) return xe();
		for (var i of e.options) i.selected = t.includes(fi(i));
	} else {
		for (i of e.options) if (nn(fi(i), t)) {
			i.selected = !0;
			return;
		}
		n && t === void 0 || (e.selectedIndex = -1);
	}
}
function ui(e) {
	var t = new MutationObserver((t) => {
		t.every(pi) || ("__defaultValue" in e && ci(e, !1), "__value" in e && li(e, e.__value));
	});
	t.observe(e, {
		childList: !0,
		subtree: !0,
		attributes: !0,
		attributeFilter: ["value"]
	}), Sn(() => {
		t.disconnect();
	});
}
function di(e, t, n = t) {
	var r = /* @__PURE__ */ new WeakSet(), i = !0;
	dt(e, "change", (t) => {
		var i = t ? "[selected]" : ":checked", a;
		if (e.multiple) a = [].map.call(e.querySelectorAll(i), fi);
		else {
			var o = e.querySelector(i) ?? e.querySelector("option:not([disabled])");
			a = o && fi(o);
		}
		n(a), e.__value = a, j !== null && r.add(j);
	}), En(() => {
		var a = t();
		if (e === document.activeElement) {
			var o = j;
			if (r.has(o)) return;
		}
		if (li(e, a, i), i && a === void 0) {
			var s = e.querySelector(":checked");
			s !== null && (a = fi(s), n(a));
		}
		e.__value = a, i = !1;
	});
}
function fi(e) {
	return "__value" in e ? e.__value : e.value;
}
function pi(e) {
	if (e.target.closest("selectedcontent") !== null) return !0;
	if (e.type === "childList") {
		var t = [...e.addedNodes, ...e.removedNodes];
		return t.length > 0 && t.every((e) => e.nodeName === "SELECTEDCONTENT");
	}
	return !1;
}
// node_modules/svelte/src/internal/client/dom/elements/attributes.js
var mi = Symbol("is custom element"), hi = Symbol("is html"), gi = he ? "link" : "LINK", _i = he ? "progress" : "PROGRESS";
function vi(e) {
	if (D) {
		var t = !1, n = () => {
			if (!t) {
				if (t = !0, e.hasAttribute("value")) {
					var n = e.value;
					X(e, "value", null), e.value = n;
				}
				if (e.hasAttribute("checked")) {
					var r = e.checked;
					X(e, "checked", null), e.checked = r;
				}
			}
		};
		e[pe] = n, nt(n), lt();
	}
}
function yi(e, t) {
	var n = bi(e);
	n.value !== (n.value = t ?? void 0) && (e.value !== t || t === 0 && e.nodeName === _i) && (e.value = t ?? "");
}
function X(e, t, n, r) {
	var i = bi(e);
	if (!(D && (i[t] = e.getAttribute(t), t === "src" || t === "srcset" || t === "href" && e.nodeName === gi))) {
		var a = i[t];
		a !== (i[t] = n) && (t === "loading" && (e[ce] = n), n == null ? e.removeAttribute(t) : typeof n != "string" && Si(e).has(t) ? e[t] = n : (!D || typeof n != "number" && typeof n != "boolean" || a !== String(n)) && e.setAttribute(t, n));
	}
}
function bi(e) {
	return e[le] ??= {
		[mi]: e.nodeName.includes("-"),
		[hi]: e.namespaceURI === ve
	};
}
var xi = /* @__PURE__ */ new Map();
function Si(e) {
	var t = e.getAttribute("is") || e.nodeName, n = xi.get(t);
	if (n) return n;
	xi.set(t, n = /* @__PURE__ */ new Set());
	for (var r, i = e, a = Element.prototype; a !== i;) {
		for (var o in r = l(i), r) r[o].set && o !== "innerHTML" && o !== "textContent" && o !== "innerText" && n.add(o);
		i = f(i);
	}
	return n;
}
// node_modules/svelte/src/internal/client/dom/elements/bindings/input.js
function Ci(e, t, n = t) {
	var r = /* @__PURE__ */ new WeakSet();
	dt(e, "input", async (i) => {
		var a = i ? e.defaultValue : e.value;
		if (a = Ti(e) ? Ei(a) : a, n(a), j !== null && r.add(j), await fr(), a !== (a = t())) {
			var o = e.selectionStart, s = e.selectionEnd, c = e.value.length;
			if (e.value = a ?? "", s !== null) {
				var l = e.value.length;
				o === s && s === c && l > c ? (e.selectionStart = l, e.selectionEnd = l) : (e.selectionStart = o, e.selectionEnd = Math.min(s, l));
			}
		}
	}), (D && e.defaultValue !== e.value || hr(t) == null && e.value) && (n(Ti(e) ? Ei(e.value) : e.value), j !== null && r.add(j)), On(() => {
		var n = t();
		if (e === document.activeElement) {
			var i = j;
			if (r.has(i)) return;
		}
		Ti(e) && n === Ei(e.value) || (e.type !== "date" || n || e.value) && n !== e.value && (e.value = n ?? "");
	});
}
function wi(e, t, n = t) {
	dt(e, "change", (t) => {
		n(t ? e.defaultChecked : e.checked);
	}), (D && e.defaultChecked !== e.checked || hr(t) == null) && n(e.checked), On(() => {
		e.checked = !!t();
	});
}
function Ti(e) {
	var t = e.type;
	return t === "number" || t === "range";
}
function Ei(e) {
	return e === "" ? null : +e;
}
var Di = /* @__PURE__ */ new class e {
	#e = /* @__PURE__ */ new WeakMap();
	#t;
	#n;
	static entries = /* @__PURE__ */ new WeakMap();
	constructor(e) {
		this.#n = e;
	}
	observe(e, t) {
		var n = this.#e.get(e) || /* @__PURE__ */ new Set();
		return n.add(t), this.#e.set(e, n), this.#r().observe(e, this.#n), () => {
			var n = this.#e.get(e);
			n.delete(t), n.size === 0 && (this.#e.delete(e), this.#t.unobserve(e));
		};
	}
	#r() {
		return this.#t ??= new ResizeObserver((t) => {
			for (var n of t) {
				e.entries.set(n.target, n);
				for (var r of this.#e.get(n.target) || []) r(n);
			}
		});
	}
}({ box: "border-box" });
function Oi(e, t, n) {
	var r = Di.observe(e, () => n(e[t]));
	En(() => (hr(() => n(e[t])), r));
}
// node_modules/svelte/src/internal/client/dom/elements/bindings/this.js
function ki(e, t) {
	return e === t || e?.[ae] === t;
}
function Ai(e = Qe(), t, n, r) {
	var i = Ke.r, a = B;
	return En(() => {
		var o, s;
		return On(() => {
			o = s, s = r?.() || [], hr(() => {
				ki(n(...s), e) || (t(e, ...s), o && ki(n(...o), e) && t(null, ...o));
			});
		}), () => {
			let r = a;
			for (; r !== i && r.parent !== null && r.parent.f & 33554432;) r = r.parent;
			let o = () => {
				s && ki(n(...s), e) && t(null, ...s);
			}, c = r.teardown;
			r.teardown = () => {
				o(), c?.();
			};
		};
	}), e;
}
// node_modules/svelte/src/internal/client/reactivity/store.js
var ji = !1;
function Mi(e) {
	var t = ji;
	try {
		return ji = !1, [e(), ji];
	} finally {
		ji = t;
	}
}
// node_modules/svelte/src/internal/client/reactivity/props.js
function Ni(e, t, n, r) {
	var i = !0, a = !!(n & 8), o = !!(n & 16), s = r, l = !0, u = void 0, d = () => o && i ? (u ??= /* @__PURE__ */ gt(r), V(u)) : (l && (l = !1, s = o ? hr(r) : r), s);
	let f;
	if (a) {
		var p = ae in e || se in e;
		f = c(e, t)?.set ?? (p && t in e ? (n) => e[t] = n : void 0);
	}
	var m, h = !1;
	a ? [m, h] = Mi(() => e[t]) : m = e[t], m === void 0 && r !== void 0 && (m = d(), f && (i && ze(t), f(m)));
	var g = i ? () => {
		var n = e[t];
		return n === void 0 ? d() : (l = !0, n);
	} : () => {
		var n = e[t];
		return n !== void 0 && (s = void 0), n === void 0 ? s : n;
	};
	if (i && !(n & 4)) return g;
	if (f) {
		var _ = e.$$legacy;
		return (function(e, t) {
			return arguments.length > 0 ? ((!i || !t || _ || h) && f(t ? g() : e), e) : g();
		});
	}
	var v = !1, y = (n & 1 ? gt : yt)(() => (v = !1, g()));
	a && V(y);
	var b = B;
	return (function(e, t) {
		if (arguments.length > 0) {
			let n = t ? V(y) : i && a ? en(e) : e;
			return N(y, n), v = !0, s !== void 0 && (s = n), e;
		}
		return Un && v || b.f & 16384 ? y.v : V(y);
	});
}
function Pi(e) {
	Ke === null && Me("onMount"), Cn(() => {
		let t = hr(e);
		if (typeof t == "function") return t;
	});
}
// node_modules/svelte/src/internal/disclose-version.js
typeof window < "u" && ((window.__svelte ??= {}).v ??= /* @__PURE__ */ new Set()).add("5");
// src/lib/numbers.ts
function Fi(e, t, n) {
	let r = new Float32Array(e.length);
	for (let i = 0; i < e.length; i++) {
		let a = t[i] * n[i];
		r[i] = a > 0 ? e[i] / a : NaN;
	}
	return r;
}
function Ii(e) {
	let t = 0;
	for (let n = 0; n < e.length; n++) e[n] > 0 && (t += e[n]);
	let n = new Float32Array(e.length);
	for (let r = 0; r < e.length; r++) n[r] = t > 0 ? e[r] / t : NaN;
	return n;
}
function Li(e) {
	let t = Array.from(e.keys()).filter((t) => !Number.isNaN(e[t]));
	t.sort((t, n) => e[n] - e[t] || t - n);
	let n = new Int32Array(e.length);
	return t.forEach((r, i) => {
		let a = i ? t[i - 1] : -1;
		n[r] = a >= 0 && e[a] === e[r] ? n[a] : i + 1;
	}), n;
}
function Z(e) {
	return e != null && Number.isFinite(e);
}
function Q(e, t = 3) {
	if (!Z(e)) return "–";
	if (Number.isInteger(e) && Math.abs(e) < 1e6) return String(e).replace("-", "−");
	let n = Math.abs(e);
	if (n >= 1e5 || n < 1e-4) return e.toExponential(t - 1).replace("-", "−");
	let r = Math.max(0, t - 1 - Math.floor(Math.log10(n)));
	return e.toFixed(Math.min(r, 6)).replace("-", "−");
}
var Ri = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, zi = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
function Bi(e) {
	return `\\u${e.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
function $(e) {
	return e.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥").replace(Ri, Bi).replace(zi, Bi);
}
function Vi(e) {
	let t = $(e);
	return t.length > 48 ? `${t.slice(0, 47)}…` : t;
}
function Hi(e) {
	return e.split(/\r?\n/).map($).join("\n");
}
// src/state.svelte.ts
var Ui = [
	"run",
	"heads",
	"why",
	"claims",
	"contexts",
	"training",
	"tour"
], Wi = {
	run: "Watch",
	heads: "Heads",
	why: "Why",
	claims: "Claims",
	contexts: "Contexts",
	training: "Training",
	tour: "Tour"
}, Gi = [
	"step",
	"layer",
	"head",
	"key",
	"row",
	"update",
	"stop",
	"claims",
	"table"
], Ki = [
	"group",
	"heat",
	"colour",
	"scale",
	"measure",
	"outcome",
	"point"
], qi = class {
	page;
	#e = /* @__PURE__ */ M("run");
	get view() {
		return V(this.#e);
	}
	set view(e) {
		N(this.#e, e, !0);
	}
	#t = /* @__PURE__ */ M(0);
	get run() {
		return V(this.#t);
	}
	set run(e) {
		N(this.#t, e, !0);
	}
	#n = /* @__PURE__ */ M(0);
	get sample() {
		return V(this.#n);
	}
	set sample(e) {
		N(this.#n, e, !0);
	}
	#r = /* @__PURE__ */ M(null);
	get other() {
		return V(this.#r);
	}
	set other(e) {
		N(this.#r, e, !0);
	}
	#i = /* @__PURE__ */ M(0);
	get step() {
		return V(this.#i);
	}
	set step(e) {
		N(this.#i, e, !0);
	}
	#a = /* @__PURE__ */ M(0);
	get layer() {
		return V(this.#a);
	}
	set layer(e) {
		N(this.#a, e, !0);
	}
	#o = /* @__PURE__ */ M(null);
	get head() {
		return V(this.#o);
	}
	set head(e) {
		N(this.#o, e, !0);
	}
	#s = /* @__PURE__ */ M("");
	get group() {
		return V(this.#s);
	}
	set group(e) {
		N(this.#s, e, !0);
	}
	#c = /* @__PURE__ */ M(null);
	get key() {
		return V(this.#c);
	}
	set key(e) {
		N(this.#c, e, !0);
	}
	#l = /* @__PURE__ */ M(null);
	get row() {
		return V(this.#l);
	}
	set row(e) {
		N(this.#l, e, !0);
	}
	#u = /* @__PURE__ */ M("layers");
	get heat() {
		return V(this.#u);
	}
	set heat(e) {
		N(this.#u, e, !0);
	}
	#d = /* @__PURE__ */ M("lift");
	get colour() {
		return V(this.#d);
	}
	set colour(e) {
		N(this.#d, e, !0);
	}
	#f = /* @__PURE__ */ M("log");
	get scale() {
		return V(this.#f);
	}
	set scale(e) {
		N(this.#f, e, !0);
	}
	#p = /* @__PURE__ */ M("");
	get measure() {
		return V(this.#p);
	}
	set measure(e) {
		N(this.#p, e, !0);
	}
	#m = /* @__PURE__ */ M("");
	get outcome() {
		return V(this.#m);
	}
	set outcome(e) {
		N(this.#m, e, !0);
	}
	#h = /* @__PURE__ */ M("");
	get point() {
		return V(this.#h);
	}
	set point(e) {
		N(this.#h, e, !0);
	}
	#g = /* @__PURE__ */ M(null);
	get update() {
		return V(this.#g);
	}
	set update(e) {
		N(this.#g, e, !0);
	}
	#_ = /* @__PURE__ */ M(0);
	get stop() {
		return V(this.#_);
	}
	set stop(e) {
		N(this.#_, e, !0);
	}
	#v = /* @__PURE__ */ M(0);
	get claims() {
		return V(this.#v);
	}
	set claims(e) {
		N(this.#v, e, !0);
	}
	#y = /* @__PURE__ */ M(0);
	get table() {
		return V(this.#y);
	}
	set table(e) {
		N(this.#y, e, !0);
	}
	#b = /* @__PURE__ */ M(!1);
	get playing() {
		return V(this.#b);
	}
	set playing(e) {
		N(this.#b, e, !0);
	}
	#x = /* @__PURE__ */ M(4);
	get speed() {
		return V(this.#x);
	}
	set speed(e) {
		N(this.#x, e, !0);
	}
	#S = /* @__PURE__ */ M(!0);
	get loop() {
		return V(this.#S);
	}
	set loop(e) {
		N(this.#S, e, !0);
	}
	#C = /* @__PURE__ */ M("auto");
	get theme() {
		return V(this.#C);
	}
	set theme(e) {
		N(this.#C, e, !0);
	}
	#w = /* @__PURE__ */ M(null);
	get hover() {
		return V(this.#w);
	}
	set hover(e) {
		N(this.#w, e, !0);
	}
	#T = /* @__PURE__ */ M(en({}));
	get bounds() {
		return V(this.#T);
	}
	set bounds(e) {
		N(this.#T, e, !0);
	}
	#E = /* @__PURE__ */ M(!1);
	get searching() {
		return V(this.#E);
	}
	set searching(e) {
		N(this.#E, e, !0);
	}
	#D = /* @__PURE__ */ M(!1);
	get help() {
		return V(this.#D);
	}
	set help(e) {
		N(this.#D, e, !0);
	}
	constructor(e) {
		this.page = e;
		let t = e.document.runs[0];
		t ? this.settle(t) : this.view = e.document.claims.length ? "claims" : e.document.evaluations.length ? "contexts" : "training";
	}
	settle(e) {
		this.group = e.groups.includes("masked") ? "masked" : e.groups[0], this.layer = Math.floor(e.layers.length / 2), this.step = Math.floor((this.sampleOf(0)?.steps ?? 1) / 3), this.other = this.partners[0] ?? null;
	}
	get runDocument() {
		return this.page.document.runs[this.run];
	}
	get sampleDocument() {
		return this.runDocument?.samples[this.sample];
	}
	sampleOf(e) {
		let t = this.page.document.runs[e]?.samples ?? [];
		return e === this.run ? t[this.sample] : t.find((e) => e.question === this.sampleDocument?.question);
	}
	get partners() {
		let e = this.page.document.runs;
		return [...e.keys()].filter((e) => e !== this.run && this.sampleOf(e)).sort((t, n) => Number(e[t].autoregressive === this.runDocument?.autoregressive) - Number(e[n].autoregressive === this.runDocument?.autoregressive));
	}
	get steps() {
		return this.sampleDocument?.steps ?? 1;
	}
	stepIn(e) {
		let t = this.sampleOf(e)?.steps ?? 1;
		return e === this.run || this.steps < 2 ? Math.min(this.step, t - 1) : Math.round(this.step / (this.steps - 1) * (t - 1));
	}
	layerIn(e) {
		let t = this.runDocument?.layers.length ?? 1, n = this.page.document.runs[e].layers.length;
		return e === this.run || t < 2 ? Math.min(this.layer, n - 1) : Math.round(this.layer / (t - 1) * (n - 1));
	}
	headIn(e) {
		return this.head === null ? null : Math.min(this.head, this.page.document.runs[e].heads - 1);
	}
	groupIn(e) {
		let t = this.page.document.runs[e].groups, n = t.indexOf(this.group);
		return n >= 0 ? n : Math.max(0, t.indexOf("predicting"));
	}
	goTo(e) {
		this.step = Math.max(0, Math.min(this.steps - 1, e));
	}
	chooseRun(e) {
		let t = this.sampleDocument?.question, n = this.page.document.runs[e].samples.findIndex((e) => e.question === t), r = this.steps > 1 ? this.step / (this.steps - 1) : 0, i = this.layerIn(e), a = this.run;
		this.group = this.page.document.runs[e].groups[this.groupIn(e)], this.layer = i, this.head = this.headIn(e), this.run = e, this.sample = Math.max(0, n), this.step = Math.round(r * (this.steps - 1)), this.key = this.row = null, this.other === e ? this.other = this.partners.includes(a) ? a : null : this.other !== null && !this.partners.includes(this.other) && (this.other = this.partners[0] ?? null);
	}
	chooseSample(e) {
		this.sample = e, this.goTo(this.step), this.key = this.row = null, this.other !== null && !this.partners.includes(this.other) && (this.other = this.partners[0] ?? null);
	}
	get link() {
		let e = this.runDocument, t = this.sampleDocument?.path.split("/").at(-1), n = [
			"",
			this.view,
			...e ? [encodeURIComponent(e.name), t] : []
		].join("/"), r = [], i = (e, t) => t !== null && t !== "" && r.push(`${e}=${encodeURIComponent(t)}`);
		return e && (i("step", this.step), i("layer", this.runDocument.layers[this.layer]), i("head", this.head), i("group", this.group), this.other !== null && i("with", this.page.document.runs[this.other].name), i("key", this.key), i("row", this.row), this.heat !== "layers" && i("heat", this.heat), this.colour !== "lift" && i("colour", this.colour), this.scale !== "log" && i("scale", this.scale)), this.view === "heads" && i("measure", this.measure), this.view === "claims" && this.claims && i("claims", this.claims), this.view === "contexts" && (this.table && i("table", this.table), i("outcome", this.outcome), i("point", this.point)), this.view === "training" && (i("measure", this.measure), i("update", this.update)), this.view === "tour" && i("stop", this.stop), `#${n}${r.length ? `?${r.join("&")}` : ""}`;
	}
	follow(e) {
		let [t, n] = e.replace(/^#/, "").split("?"), [, r, i, a] = t.split("/").map((e) => Ji(e));
		Ui.includes(r) && (this.view = r);
		let o = this.page.document.runs, s = o.findIndex((e) => e.name === i);
		s >= 0 && (this.run = s, this.sample = Math.max(0, o[s].samples.findIndex((e) => e.path.split("/").at(-1) === a)));
		let c = new Map((n ?? "").split("&").map((e) => e.split("=").map(Ji)));
		s >= 0 && (this.head = this.key = this.row = this.other = null, this.group = o[s].groups.includes(this.group) ? this.group : o[s].groups[0]);
		for (let e of Gi) {
			let t = Number(c.get(e));
			c.has(e) && Number.isInteger(t) && t >= 0 && (this[e] = t);
		}
		for (let e of Ki) c.has(e) && (this[e] = c.get(e));
		let l = this.runDocument;
		if (!l) return;
		this.goTo(this.step), c.has("layer") && (this.layer = Math.max(0, l.layers.indexOf(Number(c.get("layer"))))), this.layer = Math.min(this.layer, l.layers.length - 1), this.head !== null && this.head >= l.heads && (this.head = null), l.groups.includes(this.group) || (this.group = l.groups[0]);
		let u = this.sampleDocument?.positions ?? 0;
		this.key !== null && this.key >= u && (this.key = null), this.row !== null && this.row >= u && (this.row = null);
		let d = o.findIndex((e) => e.name === c.get("with"));
		d >= 0 && this.partners.includes(d) && (this.other = d);
	}
};
function Ji(e) {
	try {
		return decodeURIComponent(e);
	} catch {
		return "";
	}
}
var Yi = Symbol("cursor");
function Xi(e) {
	Ye(Yi, e);
}
function Zi() {
	return Je(Yi);
}
var Qi = Symbol("place");
function $i(e) {
	Ye(Qi, e);
}
function ea(e, t) {
	let n = Zi(), r = Je(Qi);
	return r ? (Cn(() => {
		let i = t(), a = `${e()}/${r()}`;
		hr(() => {
			let e = n.bounds[a];
			i && (e?.[0] !== i[0] || e[1] !== i[1]) && (n.bounds[a] = i);
		});
	}), () => {
		let i = t(), a = r() === n.run ? n.other : n.run, o = a === null ? void 0 : n.bounds[`${e()}/${a}`];
		return i && o ? [Math.min(i[0], o[0]), Math.max(i[1], o[1])] : i;
	}) : t;
}
// src/parts/Beside.svelte
var ta = /* @__PURE__ */ U("<h2> </h2>"), na = /* @__PURE__ */ U("<div class=\"panel\"><!> <!></div>"), ra = /* @__PURE__ */ U("<div></div>");
function ia(e, t) {
	Xe(t, !0);
	let n = Zi();
	var r = ra();
	let i;
	Y(r, 20, () => [n.run, ...n.other === null ? [] : [n.other]], (e) => e, (e, r) => {
		var i = na(), a = P(i), o = (e) => {
			var t = ta(), i = I(t, !0);
			R((e) => K(i, e), [() => $(n.page.document.runs[r].name)]), G(e, t);
		};
		q(a, (e) => {
			n.other !== null && e(o);
		}), Qr(L(a, 2), () => t.of, () => r), k(i), G(e, i);
	}), k(r), R(() => i = ii(r, 1, "watch", null, i, { two: n.other !== null })), G(e, r), Ze();
}
// src/parts/Chooser.svelte
var aa = /* @__PURE__ */ U("<option> </option>"), oa = /* @__PURE__ */ U("<label>Beside <select><option>nothing</option><!></select></label>"), sa = /* @__PURE__ */ U("<option></option>"), ca = /* @__PURE__ */ U("<span class=\"choice\" role=\"group\" aria-label=\"Colour shows\"><button>lift</button> <button>share</button></span> <span class=\"choice\" role=\"group\" aria-label=\"Scale\"><button>log</button> <button>linear</button></span>", 1), la = /* @__PURE__ */ U("<div class=\"chooser\"><label>Run <select></select></label> <label class=\"grow\">Prompt <select></select></label> <!> <label>Rows <select></select></label> <label>Layer <select></select></label> <label>Head <select><option>mean</option><!></select></label> <!></div>");
function ua(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ A(() => n.page.document.runs), i = /* @__PURE__ */ A(() => n.runDocument), a = (e) => {
		let t = $(e);
		return t.length > 56 ? `${t.slice(0, 55)}…` : t || "(no text)";
	}, o = /* @__PURE__ */ A(() => n.view === "run");
	var s = la(), c = P(s), l = L(P(c));
	Y(l, 21, () => V(r), J, (e, t, n) => {
		var r = aa(), i = I(r, !0);
		r.value = r.__value = n, R((e) => K(i, e), [() => $(V(t).name)]), G(e, r);
	}), k(l);
	var u;
	ui(l), k(c);
	var d = L(c, 2), f = L(P(d));
	Y(f, 21, () => V(i).samples, J, (e, t, n) => {
		var r = aa(), i = I(r, !0);
		r.value = r.__value = n, R((e) => K(i, e), [() => a(V(t).title)]), G(e, r);
	}), k(f);
	var p;
	ui(f), k(d);
	var m = L(d, 2), h = (e) => {
		var t = oa(), i = L(P(t)), a = P(i);
		a.value = a.__value = "", Y(L(a), 17, () => n.partners, J, (e, t) => {
			var n = aa(), i = I(n, !0), a = {};
			R((e) => {
				K(i, e), a !== (a = V(t)) && (n.value = (n.__value = a) ?? "");
			}, [() => $(V(r)[V(t)].name)]), G(e, n);
		}), k(i);
		var o;
		ui(i), k(t), R(() => {
			o !== (o = n.other ?? "") && (i.value = (i.__value = o) ?? "", li(i, o));
		}), H("change", i, (e) => n.other = e.currentTarget.value === "" ? null : Number(e.currentTarget.value)), G(e, t);
	};
	q(m, (e) => {
		n.view !== "tour" && n.partners.length && e(h);
	});
	var g = L(m, 2), _ = L(P(g));
	Y(_, 21, () => V(i).groups, J, (e, t) => {
		var n = aa(), r = I(n, !0), i = {};
		R(() => {
			K(r, V(t)), i !== (i = V(t)) && (n.value = (n.__value = i) ?? "");
		}), G(e, n);
	}), k(_), ui(_), k(g);
	var v = L(g, 2), y = L(P(v));
	Y(y, 21, () => V(i).layers, J, (e, t, n) => {
		var r = aa(), i = I(r, !0);
		r.value = r.__value = n, R(() => K(i, V(t))), G(e, r);
	}), k(y), ui(y), k(v);
	var b = L(v, 2), x = L(P(b)), S = P(x);
	S.value = S.__value = "", Y(L(S), 17, () => ({ length: V(i).heads }), J, (e, t, n) => {
		var r = sa();
		r.textContent = n, r.value = r.__value = n, G(e, r);
	}), k(x);
	var C;
	ui(x), k(b);
	var w = L(b, 2), T = (e) => {
		var t = ca(), r = F(t), i = P(r), a = L(i, 2);
		k(r);
		var o = L(r, 2), s = P(o), c = L(s, 2);
		k(o), R(() => {
			X(i, "aria-pressed", n.colour !== "share"), X(a, "aria-pressed", n.colour === "share"), X(s, "aria-pressed", n.scale === "log"), X(c, "aria-pressed", n.scale !== "log");
		}), H("click", i, () => n.colour = "lift"), H("click", a, () => n.colour = "share"), H("click", s, () => n.scale = "log"), H("click", c, () => n.scale = "linear"), G(e, t);
	};
	q(w, (e) => {
		V(o) && e(T);
	}), k(s), R(() => {
		u !== (u = n.run) && (l.value = (l.__value = u) ?? "", li(l, u)), p !== (p = n.sample) && (f.value = (f.__value = p) ?? "", li(f, p)), C !== (C = n.head ?? "") && (x.value = (x.__value = C) ?? "", li(x, C));
	}), H("change", l, (e) => n.chooseRun(Number(e.currentTarget.value))), H("change", f, (e) => n.chooseSample(Number(e.currentTarget.value))), di(_, () => n.group, (e) => n.group = e), di(y, () => n.layer, (e) => n.layer = e), H("change", x, (e) => n.head = e.currentTarget.value === "" ? null : Number(e.currentTarget.value)), G(e, s), Ze();
}
Cr(["change", "click"]);
// src/parts/Dock.svelte
var da = /* @__PURE__ */ W("<path d=\"M4 3h3v10H4zM9 3h3v10H9z\"></path>"), fa = /* @__PURE__ */ W("<path d=\"M4.5 2.5v11l9-5.5z\"></path>"), pa = /* @__PURE__ */ U("<option> </option>"), ma = /* @__PURE__ */ W("<rect class=\"commits\"></rect>"), ha = /* @__PURE__ */ U("<div class=\"dock\"><div class=\"play\"><button class=\"round\"><svg width=\"16\" height=\"16\" viewBox=\"0 0 16 16\" aria-hidden=\"true\"><!></svg></button> <label class=\"small\">speed <select></select></label> <label class=\"small\"><input type=\"checkbox\"/> loop</label></div> <div class=\"strip\"><svg role=\"img\" aria-label=\"Commits, confidence and the anchors' centroid by step\"><!><path class=\"null c2\"></path><path class=\"line c0\"></path><path class=\"line c2\" stroke-dasharray=\"2 3\"></path><line class=\"cursor\" y1=\"0\"></line></svg> <input type=\"range\" min=\"0\" step=\"1\" aria-label=\"Step\"/> <p class=\"strip-legend\"><span><i class=\"swatch commits\"></i>commits</span><span><i class=\"swatch c0\"></i>confidence</span><span><i class=\"swatch dotted c2\"></i> </span></p></div> <output class=\"where\"><b> </b><span> </span></output></div>");
function ga(e, t) {
	Xe(t, !0);
	let n = Zi(), r = n.page, i = /* @__PURE__ */ A(() => n.sampleDocument), a = /* @__PURE__ */ A(() => n.runDocument), o = /* @__PURE__ */ M(null), s = /* @__PURE__ */ M(null), c = /* @__PURE__ */ M(null), l = /* @__PURE__ */ M(null), u = /* @__PURE__ */ M(600);
	Cn(() => {
		let e = V(i), t = !1;
		return Promise.all([
			r.values(e, "commits"),
			r.values(e, "commit_confidence"),
			r.values(e, "centroid"),
			r.values(e, "centroid_null")
		]).then((e) => {
			t || ((e) => {
				var t = _(e, 4);
				N(o, t[0]), N(s, t[1]), N(c, t[2]), N(l, t[3]);
			})(e);
		}), () => void (t = !0);
	});
	let d = /* @__PURE__ */ A(() => n.groupIn(n.run)), f = /* @__PURE__ */ A(() => V(i).steps), p = /* @__PURE__ */ A(() => (e) => 9 + (V(f) < 2 ? 0 : e / (V(f) - 1) * (V(u) - 18))), m = (e) => 4 + (1 - e) * 50, h = /* @__PURE__ */ A(() => Math.max(1, ...V(o) ?? [])), g = /* @__PURE__ */ A(() => (e) => V(c)?.[(e * V(a).layers.length + n.layer) * V(a).groups.length + V(d)] ?? NaN), v = /* @__PURE__ */ A(() => (e) => {
		let t = V(l) ? V(l).length / V(f) / V(a).groups.length : 1;
		return V(l)?.[(e * t + (t === 1 ? 0 : n.layer)) * V(a).groups.length + V(d)] ?? NaN;
	});
	function y(e) {
		let t = "", n = !1;
		for (let r = 0; r < V(f); r++) {
			let i = e(r);
			Z(i) && (t += `${n ? "L" : "M"}${V(p)(r).toFixed(1)} ${m(i).toFixed(1)}`), n = Z(i);
		}
		return t;
	}
	function b(e) {
		let t = e.currentTarget.getBoundingClientRect();
		return Math.max(0, Math.min(V(f) - 1, Math.round((e.clientX - t.left - 9) / (t.width - 18) * (V(f) - 1))));
	}
	function x(e) {
		let t = b(e);
		n.hover = {
			x: e.clientX,
			y: e.clientY,
			title: `step ${t}`,
			lines: [
				["committed", Q(V(o)?.[t])],
				["mean confidence of those", Q(V(s)?.[t], 4)],
				[`anchors' centroid, layer ${V(a).layers[n.layer]}`, `${Q(V(g)(t), 3)} · null ${Q(V(v)(t), 3)}`]
			]
		};
	}
	Cn(() => {
		if (!n.playing) return;
		let e = setInterval(() => {
			n.step + 1 < n.steps ? n.step += 1 : n.loop ? n.step = 0 : n.playing = !1;
		}, 1e3 / n.speed);
		return () => clearInterval(e);
	});
	var S = ha(), C = P(S), w = P(C), T = P(w), E = P(T), ee = (e) => {
		G(e, da());
	}, te = (e) => {
		G(e, fa());
	};
	q(E, (e) => {
		n.playing ? e(ee) : e(te, -1);
	}), k(T), k(w);
	var ne = L(w, 2), re = L(P(ne));
	Y(re, 20, () => [
		1,
		2,
		4,
		8,
		16
	], J, (e, t) => {
		var n = pa(), r = I(n), i = {};
		R(() => {
			K(r, `${t ?? ""} / s`), i !== (i = t) && (n.value = (n.__value = i) ?? "");
		}), G(e, n);
	}), k(re), ui(re), k(ne);
	var ie = L(ne, 2), ae = P(ie);
	vi(ae), Ee(), k(ie), k(C);
	var oe = L(C, 2), se = P(oe);
	X(se, "height", 58);
	var ce = P(se);
	Y(ce, 17, () => V(o) ?? [], J, (e, t, n) => {
		var r = Nr(), i = F(r), a = (e) => {
			let r = /* @__PURE__ */ A(() => V(t) / V(h) * 16);
			var i = ma();
			R((e, t) => {
				X(i, "x", e), X(i, "y", 54 - V(r)), X(i, "width", t), X(i, "height", V(r));
			}, [() => V(p)(n) - Math.max(.6, Math.min(4, V(u) / V(f) / 3)), () => Math.max(1.2, Math.min(8, V(u) / V(f) / 1.5))]), G(e, i);
		};
		q(i, (e) => {
			V(t) && e(a);
		}), G(e, r);
	});
	var le = L(ce), ue = L(le), de = L(ue), fe = L(de);
	X(fe, "y2", 58), k(se);
	var pe = L(se, 2);
	vi(pe);
	var me = L(pe, 2), he = L(P(me), 2), ge = L(P(he));
	k(he), k(me), k(oe);
	var _e = L(oe, 2), ve = P(_e), ye = I(ve, !0), be = I(L(ve));
	k(_e), k(S), R((e, t, r, i, o) => {
		X(w, "aria-label", n.playing ? "Pause" : "Play"), X(se, "width", V(u)), X(le, "d", e), X(ue, "d", t), X(de, "d", r), X(fe, "x1", i), X(fe, "x2", o), X(pe, "max", V(f) - 1), X(pe, "aria-valuetext", `step ${n.step} of ${V(f) - 1}`), K(ge, `anchors’ centroid, layer ${V(a).layers[n.layer] ?? ""} (0 first key, 1 last; thin: null)`), K(ye, n.step), K(be, `of ${V(f) - 1}`);
	}, [
		() => y(V(v)),
		() => y((e) => V(s)?.[e] ?? NaN),
		() => y(V(g)),
		() => V(p)(n.step),
		() => V(p)(n.step)
	]), H("click", w, () => n.playing = !n.playing), di(re, () => n.speed, (e) => n.speed = e), wi(ae, () => n.loop, (e) => n.loop = e), H("pointermove", se, x), Sr("pointerleave", se, () => n.hover = null), H("click", se, (e) => n.goTo(b(e))), Ci(pe, () => n.step, (e) => n.step = e), Oi(oe, "clientWidth", (e) => N(u, e)), G(e, S), Ze();
}
Cr(["click", "pointermove"]);
// src/lib/export.ts
function _a(e) {
	let t = (e) => {
		if (e === null || typeof e == "number" && !Number.isFinite(e)) return "";
		let t = typeof e == "number" ? String(e) : e, n = typeof e == "string" && /^[=+\-@\t\r]/.test(t) ? `'${t}` : t;
		return /[",\n\r]/.test(n) ? `"${n.replaceAll("\"", "\"\"")}"` : n;
	};
	return [e.head, ...e.rows].map((e) => e.map(t).join(",")).join("\r\n") + "\r\n";
}
var va = [
	"fill",
	"fill-opacity",
	"stroke",
	"stroke-width",
	"stroke-dasharray",
	"stroke-opacity",
	"opacity",
	"font-size",
	"font-family",
	"font-weight",
	"text-anchor",
	"dominant-baseline"
];
function ya(e, t) {
	let n = e.cloneNode(!0), r = [e, ...e.querySelectorAll("*")];
	[n, ...n.querySelectorAll("*")].forEach((e, t) => {
		let n = getComputedStyle(r[t]);
		for (let t of va) e.setAttribute(t, n.getPropertyValue(t));
		e.removeAttribute("class"), e.removeAttribute("style");
	});
	let { width: i, height: a } = e.getBoundingClientRect();
	n.setAttribute("xmlns", "http://www.w3.org/2000/svg"), n.setAttribute("width", String(Math.round(i))), n.setAttribute("height", String(Math.round(a))), n.getAttribute("viewBox") || n.setAttribute("viewBox", `0 0 ${Math.round(i)} ${Math.round(a)}`);
	let o = document.createElementNS("http://www.w3.org/2000/svg", "rect");
	for (let [e, n] of Object.entries({
		width: "100%",
		height: "100%",
		fill: t
	})) o.setAttribute(e, n);
	return n.prepend(o), new XMLSerializer().serializeToString(n);
}
function ba(e, t, n) {
	let r = URL.createObjectURL(new Blob([n], { type: t })), i = document.createElement("a");
	i.href = r, i.download = e, i.click(), setTimeout(() => URL.revokeObjectURL(r), 1e4);
}
async function xa(e, t, n) {
	let r = new Image(), i = URL.createObjectURL(new Blob([e], { type: "image/svg+xml" }));
	try {
		await new Promise((e, t) => {
			r.onload = e, r.onerror = () => t(/* @__PURE__ */ Error("The chart could not be drawn.")), r.src = i;
		});
		let e = document.createElement("canvas");
		return e.width = t * 2, e.height = n * 2, e.getContext("2d").drawImage(r, 0, 0, e.width, e.height), await new Promise((t, n) => e.toBlob((e) => e ? t(e) : n(/* @__PURE__ */ Error("The picture is empty.")), "image/png"));
	} finally {
		URL.revokeObjectURL(i);
	}
}
function Sa(e, t) {
	return `${e.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart"}.${t}`;
}
// node_modules/d3-array/dist/d3-array.mjs
function Ca(e, t) {
	return e == null || t == null ? NaN : e < t ? -1 : e > t ? 1 : e >= t ? 0 : NaN;
}
function wa(e, t) {
	return e == null || t == null ? NaN : t < e ? -1 : t > e ? 1 : t >= e ? 0 : NaN;
}
function Ta(e) {
	let t, n, r;
	e.length === 2 ? (t = e === Ca || e === wa ? e : Ea, n = e, r = e) : (t = Ca, n = (t, n) => Ca(e(t), n), r = (t, n) => e(t) - n);
	function i(e, r, i = 0, a = e.length) {
		if (i < a) {
			if (t(r, r) !== 0) return a;
			do {
				let t = i + a >>> 1;
				n(e[t], r) < 0 ? i = t + 1 : a = t;
			} while (i < a);
		}
		return i;
	}
	function a(e, r, i = 0, a = e.length) {
		if (i < a) {
			if (t(r, r) !== 0) return a;
			do {
				let t = i + a >>> 1;
				n(e[t], r) <= 0 ? i = t + 1 : a = t;
			} while (i < a);
		}
		return i;
	}
	function o(e, t, n = 0, a = e.length) {
		let o = i(e, t, n, a - 1);
		return o > n && r(e[o - 1], t) > -r(e[o], t) ? o - 1 : o;
	}
	return {
		left: i,
		center: o,
		right: a
	};
}
function Ea() {
	return 0;
}
function Da(e) {
	return e === null ? NaN : +e;
}
var Oa = Ta(Ca), ka = Oa.right;
Oa.left, Ta(Da).center, Array.prototype.slice;
var Aa = Math.sqrt(50), ja = Math.sqrt(10), Ma = Math.sqrt(2);
function Na(e, t, n) {
	let r = (t - e) / Math.max(0, n), i = Math.floor(Math.log10(r)), a = r / 10 ** i, o = a >= Aa ? 10 : a >= ja ? 5 : a >= Ma ? 2 : 1, s, c, l;
	return i < 0 ? (l = 10 ** -i / o, s = Math.round(e * l), c = Math.round(t * l), s / l < e && ++s, c / l > t && --c, l = -l) : (l = 10 ** i * o, s = Math.round(e / l), c = Math.round(t / l), s * l < e && ++s, c * l > t && --c), c < s && .5 <= n && n < 2 ? Na(e, t, n * 2) : [
		s,
		c,
		l
	];
}
function Pa(e, t, n) {
	if (t = +t, e = +e, n = +n, !(n > 0)) return [];
	if (e === t) return [e];
	let r = t < e, [i, a, o] = r ? Na(t, e, n) : Na(e, t, n);
	if (!(a >= i)) return [];
	let s = a - i + 1, c = Array(s);
	if (r) {
		if (o < 0) for (let e = 0; e < s; ++e) c[e] = (a - e) / -o;
		else for (let e = 0; e < s; ++e) c[e] = (a - e) * o;
	} else if (o < 0) for (let e = 0; e < s; ++e) c[e] = (i + e) / -o;
	else for (let e = 0; e < s; ++e) c[e] = (i + e) * o;
	return c;
}
function Fa(e, t, n) {
	return t = +t, e = +e, n = +n, Na(e, t, n)[2];
}
function Ia(e, t, n) {
	t = +t, e = +e, n = +n;
	let r = t < e, i = r ? Fa(t, e, n) : Fa(e, t, n);
	return (r ? -1 : 1) * (i < 0 ? 1 / -i : i);
}
// node_modules/d3-color/dist/d3-color.mjs
function La(e, t, n) {
	e.prototype = t.prototype = n, n.constructor = e;
}
function Ra(e, t) {
	var n = Object.create(e.prototype);
	for (var r in t) n[r] = t[r];
	return n;
}
function za() {}
var Ba = .7, Va = 1 / Ba, Ha = "\\s*([+-]?\\d+)\\s*", Ua = "\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*", Wa = "\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*", Ga = /^#([0-9a-f]{3,8})$/, Ka = RegExp(`^rgb\\(${Ha},${Ha},${Ha}\\)$`), qa = RegExp(`^rgb\\(${Wa},${Wa},${Wa}\\)$`), Ja = RegExp(`^rgba\\(${Ha},${Ha},${Ha},${Ua}\\)$`), Ya = RegExp(`^rgba\\(${Wa},${Wa},${Wa},${Ua}\\)$`), Xa = RegExp(`^hsl\\(${Ua},${Wa},${Wa}\\)$`), Za = RegExp(`^hsla\\(${Ua},${Wa},${Wa},${Ua}\\)$`), Qa = {
	aliceblue: 15792383,
	antiquewhite: 16444375,
	aqua: 65535,
	aquamarine: 8388564,
	azure: 15794175,
	beige: 16119260,
	bisque: 16770244,
	black: 0,
	blanchedalmond: 16772045,
	blue: 255,
	blueviolet: 9055202,
	brown: 10824234,
	burlywood: 14596231,
	cadetblue: 6266528,
	chartreuse: 8388352,
	chocolate: 13789470,
	coral: 16744272,
	cornflowerblue: 6591981,
	cornsilk: 16775388,
	crimson: 14423100,
	cyan: 65535,
	darkblue: 139,
	darkcyan: 35723,
	darkgoldenrod: 12092939,
	darkgray: 11119017,
	darkgreen: 25600,
	darkgrey: 11119017,
	darkkhaki: 12433259,
	darkmagenta: 9109643,
	darkolivegreen: 5597999,
	darkorange: 16747520,
	darkorchid: 10040012,
	darkred: 9109504,
	darksalmon: 15308410,
	darkseagreen: 9419919,
	darkslateblue: 4734347,
	darkslategray: 3100495,
	darkslategrey: 3100495,
	darkturquoise: 52945,
	darkviolet: 9699539,
	deeppink: 16716947,
	deepskyblue: 49151,
	dimgray: 6908265,
	dimgrey: 6908265,
	dodgerblue: 2003199,
	firebrick: 11674146,
	floralwhite: 16775920,
	forestgreen: 2263842,
	fuchsia: 16711935,
	gainsboro: 14474460,
	ghostwhite: 16316671,
	gold: 16766720,
	goldenrod: 14329120,
	gray: 8421504,
	green: 32768,
	greenyellow: 11403055,
	grey: 8421504,
	honeydew: 15794160,
	hotpink: 16738740,
	indianred: 13458524,
	indigo: 4915330,
	ivory: 16777200,
	khaki: 15787660,
	lavender: 15132410,
	lavenderblush: 16773365,
	lawngreen: 8190976,
	lemonchiffon: 16775885,
	lightblue: 11393254,
	lightcoral: 15761536,
	lightcyan: 14745599,
	lightgoldenrodyellow: 16448210,
	lightgray: 13882323,
	lightgreen: 9498256,
	lightgrey: 13882323,
	lightpink: 16758465,
	lightsalmon: 16752762,
	lightseagreen: 2142890,
	lightskyblue: 8900346,
	lightslategray: 7833753,
	lightslategrey: 7833753,
	lightsteelblue: 11584734,
	lightyellow: 16777184,
	lime: 65280,
	limegreen: 3329330,
	linen: 16445670,
	magenta: 16711935,
	maroon: 8388608,
	mediumaquamarine: 6737322,
	mediumblue: 205,
	mediumorchid: 12211667,
	mediumpurple: 9662683,
	mediumseagreen: 3978097,
	mediumslateblue: 8087790,
	mediumspringgreen: 64154,
	mediumturquoise: 4772300,
	mediumvioletred: 13047173,
	midnightblue: 1644912,
	mintcream: 16121850,
	mistyrose: 16770273,
	moccasin: 16770229,
	navajowhite: 16768685,
	navy: 128,
	oldlace: 16643558,
	olive: 8421376,
	olivedrab: 7048739,
	orange: 16753920,
	orangered: 16729344,
	orchid: 14315734,
	palegoldenrod: 15657130,
	palegreen: 10025880,
	paleturquoise: 11529966,
	palevioletred: 14381203,
	papayawhip: 16773077,
	peachpuff: 16767673,
	peru: 13468991,
	pink: 16761035,
	plum: 14524637,
	powderblue: 11591910,
	purple: 8388736,
	rebeccapurple: 6697881,
	red: 16711680,
	rosybrown: 12357519,
	royalblue: 4286945,
	saddlebrown: 9127187,
	salmon: 16416882,
	sandybrown: 16032864,
	seagreen: 3050327,
	seashell: 16774638,
	sienna: 10506797,
	silver: 12632256,
	skyblue: 8900331,
	slateblue: 6970061,
	slategray: 7372944,
	slategrey: 7372944,
	snow: 16775930,
	springgreen: 65407,
	steelblue: 4620980,
	tan: 13808780,
	teal: 32896,
	thistle: 14204888,
	tomato: 16737095,
	turquoise: 4251856,
	violet: 15631086,
	wheat: 16113331,
	white: 16777215,
	whitesmoke: 16119285,
	yellow: 16776960,
	yellowgreen: 10145074
};
La(za, ro, {
	copy(e) {
		return Object.assign(new this.constructor(), this, e);
	},
	displayable() {
		return this.rgb().displayable();
	},
	hex: $a,
	formatHex: $a,
	formatHex8: eo,
	formatHsl: to,
	formatRgb: no,
	toString: no
});
function $a() {
	return this.rgb().formatHex();
}
function eo() {
	return this.rgb().formatHex8();
}
function to() {
	return _o(this).formatHsl();
}
function no() {
	return this.rgb().formatRgb();
}
function ro(e) {
	var t, n;
	return e = (e + "").trim().toLowerCase(), (t = Ga.exec(e)) ? (n = t[1].length, t = parseInt(t[1], 16), n === 6 ? io(t) : n === 3 ? new co(t >> 8 & 15 | t >> 4 & 240, t >> 4 & 15 | t & 240, (t & 15) << 4 | t & 15, 1) : n === 8 ? ao(t >> 24 & 255, t >> 16 & 255, t >> 8 & 255, (t & 255) / 255) : n === 4 ? ao(t >> 12 & 15 | t >> 8 & 240, t >> 8 & 15 | t >> 4 & 240, t >> 4 & 15 | t & 240, ((t & 15) << 4 | t & 15) / 255) : null) : (t = Ka.exec(e)) ? new co(t[1], t[2], t[3], 1) : (t = qa.exec(e)) ? new co(t[1] * 255 / 100, t[2] * 255 / 100, t[3] * 255 / 100, 1) : (t = Ja.exec(e)) ? ao(t[1], t[2], t[3], t[4]) : (t = Ya.exec(e)) ? ao(t[1] * 255 / 100, t[2] * 255 / 100, t[3] * 255 / 100, t[4]) : (t = Xa.exec(e)) ? go(t[1], t[2] / 100, t[3] / 100, 1) : (t = Za.exec(e)) ? go(t[1], t[2] / 100, t[3] / 100, t[4]) : Qa.hasOwnProperty(e) ? io(Qa[e]) : e === "transparent" ? new co(NaN, NaN, NaN, 0) : null;
}
function io(e) {
	return new co(e >> 16 & 255, e >> 8 & 255, e & 255, 1);
}
function ao(e, t, n, r) {
	return r <= 0 && (e = t = n = NaN), new co(e, t, n, r);
}
function oo(e) {
	return e instanceof za || (e = ro(e)), e ? (e = e.rgb(), new co(e.r, e.g, e.b, e.opacity)) : new co();
}
function so(e, t, n, r) {
	return arguments.length === 1 ? oo(e) : new co(e, t, n, r ?? 1);
}
function co(e, t, n, r) {
	this.r = +e, this.g = +t, this.b = +n, this.opacity = +r;
}
La(co, so, Ra(za, {
	brighter(e) {
		return e = e == null ? Va : Va ** +e, new co(this.r * e, this.g * e, this.b * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? Ba : Ba ** +e, new co(this.r * e, this.g * e, this.b * e, this.opacity);
	},
	rgb() {
		return this;
	},
	clamp() {
		return new co(mo(this.r), mo(this.g), mo(this.b), po(this.opacity));
	},
	displayable() {
		return -.5 <= this.r && this.r < 255.5 && -.5 <= this.g && this.g < 255.5 && -.5 <= this.b && this.b < 255.5 && 0 <= this.opacity && this.opacity <= 1;
	},
	hex: lo,
	formatHex: lo,
	formatHex8: uo,
	formatRgb: fo,
	toString: fo
}));
function lo() {
	return `#${ho(this.r)}${ho(this.g)}${ho(this.b)}`;
}
function uo() {
	return `#${ho(this.r)}${ho(this.g)}${ho(this.b)}${ho((isNaN(this.opacity) ? 1 : this.opacity) * 255)}`;
}
function fo() {
	let e = po(this.opacity);
	return `${e === 1 ? "rgb(" : "rgba("}${mo(this.r)}, ${mo(this.g)}, ${mo(this.b)}${e === 1 ? ")" : `, ${e})`}`;
}
function po(e) {
	return isNaN(e) ? 1 : Math.max(0, Math.min(1, e));
}
function mo(e) {
	return Math.max(0, Math.min(255, Math.round(e) || 0));
}
function ho(e) {
	return e = mo(e), (e < 16 ? "0" : "") + e.toString(16);
}
function go(e, t, n, r) {
	return r <= 0 ? e = t = n = NaN : n <= 0 || n >= 1 ? e = t = NaN : t <= 0 && (e = NaN), new yo(e, t, n, r);
}
function _o(e) {
	if (e instanceof yo) return new yo(e.h, e.s, e.l, e.opacity);
	if (e instanceof za || (e = ro(e)), !e) return new yo();
	if (e instanceof yo) return e;
	e = e.rgb();
	var t = e.r / 255, n = e.g / 255, r = e.b / 255, i = Math.min(t, n, r), a = Math.max(t, n, r), o = NaN, s = a - i, c = (a + i) / 2;
	return s ? (o = t === a ? (n - r) / s + (n < r) * 6 : n === a ? (r - t) / s + 2 : (t - n) / s + 4, s /= c < .5 ? a + i : 2 - a - i, o *= 60) : s = c > 0 && c < 1 ? 0 : o, new yo(o, s, c, e.opacity);
}
function vo(e, t, n, r) {
	return arguments.length === 1 ? _o(e) : new yo(e, t, n, r ?? 1);
}
function yo(e, t, n, r) {
	this.h = +e, this.s = +t, this.l = +n, this.opacity = +r;
}
La(yo, vo, Ra(za, {
	brighter(e) {
		return e = e == null ? Va : Va ** +e, new yo(this.h, this.s, this.l * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? Ba : Ba ** +e, new yo(this.h, this.s, this.l * e, this.opacity);
	},
	rgb() {
		var e = this.h % 360 + (this.h < 0) * 360, t = isNaN(e) || isNaN(this.s) ? 0 : this.s, n = this.l, r = n + (n < .5 ? n : 1 - n) * t, i = 2 * n - r;
		return new co(So(e >= 240 ? e - 240 : e + 120, i, r), So(e, i, r), So(e < 120 ? e + 240 : e - 120, i, r), this.opacity);
	},
	clamp() {
		return new yo(bo(this.h), xo(this.s), xo(this.l), po(this.opacity));
	},
	displayable() {
		return (0 <= this.s && this.s <= 1 || isNaN(this.s)) && 0 <= this.l && this.l <= 1 && 0 <= this.opacity && this.opacity <= 1;
	},
	formatHsl() {
		let e = po(this.opacity);
		return `${e === 1 ? "hsl(" : "hsla("}${bo(this.h)}, ${xo(this.s) * 100}%, ${xo(this.l) * 100}%${e === 1 ? ")" : `, ${e})`}`;
	}
}));
function bo(e) {
	return e = (e || 0) % 360, e < 0 ? e + 360 : e;
}
function xo(e) {
	return Math.max(0, Math.min(1, e || 0));
}
function So(e, t, n) {
	return (e < 60 ? t + (n - t) * e / 60 : e < 180 ? n : e < 240 ? t + (n - t) * (240 - e) / 60 : t) * 255;
}
var Co = Math.PI / 180, wo = 180 / Math.PI, To = 18, Eo = .96422, Do = 1, Oo = .82521, ko = 4 / 29, Ao = 6 / 29, jo = 3 * Ao * Ao, Mo = Ao * Ao * Ao;
function No(e) {
	if (e instanceof Fo) return new Fo(e.l, e.a, e.b, e.opacity);
	if (e instanceof Ho) return Uo(e);
	e instanceof co || (e = oo(e));
	var t = zo(e.r), n = zo(e.g), r = zo(e.b), i = Io((.2225045 * t + .7168786 * n + .0606169 * r) / Do), a, o;
	return t === n && n === r ? a = o = i : (a = Io((.4360747 * t + .3850649 * n + .1430804 * r) / Eo), o = Io((.0139322 * t + .0971045 * n + .7141733 * r) / Oo)), new Fo(116 * i - 16, 500 * (a - i), 200 * (i - o), e.opacity);
}
function Po(e, t, n, r) {
	return arguments.length === 1 ? No(e) : new Fo(e, t, n, r ?? 1);
}
function Fo(e, t, n, r) {
	this.l = +e, this.a = +t, this.b = +n, this.opacity = +r;
}
La(Fo, Po, Ra(za, {
	brighter(e) {
		return new Fo(this.l + To * (e ?? 1), this.a, this.b, this.opacity);
	},
	darker(e) {
		return new Fo(this.l - To * (e ?? 1), this.a, this.b, this.opacity);
	},
	rgb() {
		var e = (this.l + 16) / 116, t = isNaN(this.a) ? e : e + this.a / 500, n = isNaN(this.b) ? e : e - this.b / 200;
		return t = Eo * Lo(t), e = Do * Lo(e), n = Oo * Lo(n), new co(Ro(3.1338561 * t - 1.6168667 * e - .4906146 * n), Ro(-.9787684 * t + 1.9161415 * e + .033454 * n), Ro(.0719453 * t - .2289914 * e + 1.4052427 * n), this.opacity);
	}
}));
function Io(e) {
	return e > Mo ? e ** (1 / 3) : e / jo + ko;
}
function Lo(e) {
	return e > Ao ? e * e * e : jo * (e - ko);
}
function Ro(e) {
	return 255 * (e <= .0031308 ? 12.92 * e : 1.055 * e ** (1 / 2.4) - .055);
}
function zo(e) {
	return (e /= 255) <= .04045 ? e / 12.92 : ((e + .055) / 1.055) ** 2.4;
}
function Bo(e) {
	if (e instanceof Ho) return new Ho(e.h, e.c, e.l, e.opacity);
	if (e instanceof Fo || (e = No(e)), e.a === 0 && e.b === 0) return new Ho(NaN, 0 < e.l && e.l < 100 ? 0 : NaN, e.l, e.opacity);
	var t = Math.atan2(e.b, e.a) * wo;
	return new Ho(t < 0 ? t + 360 : t, Math.sqrt(e.a * e.a + e.b * e.b), e.l, e.opacity);
}
function Vo(e, t, n, r) {
	return arguments.length === 1 ? Bo(e) : new Ho(e, t, n, r ?? 1);
}
function Ho(e, t, n, r) {
	this.h = +e, this.c = +t, this.l = +n, this.opacity = +r;
}
function Uo(e) {
	if (isNaN(e.h)) return new Fo(e.l, 0, 0, e.opacity);
	var t = e.h * Co;
	return new Fo(e.l, Math.cos(t) * e.c, Math.sin(t) * e.c, e.opacity);
}
La(Ho, Vo, Ra(za, {
	brighter(e) {
		return new Ho(this.h, this.c, this.l + To * (e ?? 1), this.opacity);
	},
	darker(e) {
		return new Ho(this.h, this.c, this.l - To * (e ?? 1), this.opacity);
	},
	rgb() {
		return Uo(this).rgb();
	}
}));
var Wo = -.14861, Go = 1.78277, Ko = -.29227, qo = -.90649, Jo = 1.97294, Yo = Jo * qo, Xo = Jo * Go, Zo = Go * Ko - qo * Wo;
function Qo(e) {
	if (e instanceof es) return new es(e.h, e.s, e.l, e.opacity);
	e instanceof co || (e = oo(e));
	var t = e.r / 255, n = e.g / 255, r = e.b / 255, i = (Zo * r + Yo * t - Xo * n) / (Zo + Yo - Xo), a = r - i, o = (Jo * (n - i) - Ko * a) / qo, s = Math.sqrt(o * o + a * a) / (Jo * i * (1 - i)), c = s ? Math.atan2(o, a) * wo - 120 : NaN;
	return new es(c < 0 ? c + 360 : c, s, i, e.opacity);
}
function $o(e, t, n, r) {
	return arguments.length === 1 ? Qo(e) : new es(e, t, n, r ?? 1);
}
function es(e, t, n, r) {
	this.h = +e, this.s = +t, this.l = +n, this.opacity = +r;
}
La(es, $o, Ra(za, {
	brighter(e) {
		return e = e == null ? Va : Va ** +e, new es(this.h, this.s, this.l * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? Ba : Ba ** +e, new es(this.h, this.s, this.l * e, this.opacity);
	},
	rgb() {
		var e = isNaN(this.h) ? 0 : (this.h + 120) * Co, t = +this.l, n = isNaN(this.s) ? 0 : this.s * t * (1 - t), r = Math.cos(e), i = Math.sin(e);
		return new co(255 * (t + n * (Wo * r + Go * i)), 255 * (t + n * (Ko * r + qo * i)), 255 * (t + Jo * r * n), this.opacity);
	}
}));
var ts = (e) => () => e;
function ns(e, t) {
	return function(n) {
		return e + n * t;
	};
}
function rs(e, t, n) {
	return e **= +n, t = t ** +n - e, n = 1 / n, function(r) {
		return (e + r * t) ** +n;
	};
}
function is(e, t) {
	var n = t - e;
	return n ? ns(e, n > 180 || n < -180 ? n - 360 * Math.round(n / 360) : n) : ts(isNaN(e) ? t : e);
}
function as(e) {
	return (e = +e) == 1 ? os : function(t, n) {
		return n - t ? rs(t, n, e) : ts(isNaN(t) ? n : t);
	};
}
function os(e, t) {
	var n = t - e;
	return n ? ns(e, n) : ts(isNaN(e) ? t : e);
}
var ss = (function e(t) {
	var n = as(t);
	function r(e, t) {
		var r = n((e = so(e)).r, (t = so(t)).r), i = n(e.g, t.g), a = n(e.b, t.b), o = os(e.opacity, t.opacity);
		return function(t) {
			return e.r = r(t), e.g = i(t), e.b = a(t), e.opacity = o(t), e + "";
		};
	}
	return r.gamma = e, r;
})(1);
function cs(e, t) {
	t ||= [];
	var n = e ? Math.min(t.length, e.length) : 0, r = t.slice(), i;
	return function(a) {
		for (i = 0; i < n; ++i) r[i] = e[i] * (1 - a) + t[i] * a;
		return r;
	};
}
function ls(e) {
	return ArrayBuffer.isView(e) && !(e instanceof DataView);
}
function us(e, t) {
	for (var n = t ? t.length : 0, r = e ? Math.min(n, e.length) : 0, i = Array(r), a = Array(n), o = 0; o < r; ++o) i[o] = ys(e[o], t[o]);
	for (; o < n; ++o) a[o] = t[o];
	return function(e) {
		for (o = 0; o < r; ++o) a[o] = i[o](e);
		return a;
	};
}
function ds(e, t) {
	var n = /* @__PURE__ */ new Date();
	return e = +e, t = +t, function(r) {
		return n.setTime(e * (1 - r) + t * r), n;
	};
}
function fs(e, t) {
	return e = +e, t = +t, function(n) {
		return e * (1 - n) + t * n;
	};
}
function ps(e, t) {
	var n = {}, r = {}, i;
	for (i in typeof e == "object" && e || (e = {}), typeof t == "object" && t || (t = {}), t) i in e ? n[i] = ys(e[i], t[i]) : r[i] = t[i];
	return function(e) {
		for (i in n) r[i] = n[i](e);
		return r;
	};
}
var ms = /[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g, hs = new RegExp(ms.source, "g");
function gs(e) {
	return function() {
		return e;
	};
}
function _s(e) {
	return function(t) {
		return e(t) + "";
	};
}
function vs(e, t) {
	var n = ms.lastIndex = hs.lastIndex = 0, r, i, a, o = -1, s = [], c = [];
	for (e += "", t += ""; (r = ms.exec(e)) && (i = hs.exec(t));) (a = i.index) > n && (a = t.slice(n, a), s[o] ? s[o] += a : s[++o] = a), (r = r[0]) === (i = i[0]) ? s[o] ? s[o] += i : s[++o] = i : (s[++o] = null, c.push({
		i: o,
		x: fs(r, i)
	})), n = hs.lastIndex;
	return n < t.length && (a = t.slice(n), s[o] ? s[o] += a : s[++o] = a), s.length < 2 ? c[0] ? _s(c[0].x) : gs(t) : (t = c.length, function(e) {
		for (var n = 0, r; n < t; ++n) s[(r = c[n]).i] = r.x(e);
		return s.join("");
	});
}
function ys(e, t) {
	var n = typeof t, r;
	return t == null || n === "boolean" ? ts(t) : (n === "number" ? fs : n === "string" ? (r = ro(t)) ? (t = r, ss) : vs : t instanceof ro ? ss : t instanceof Date ? ds : ls(t) ? cs : Array.isArray(t) ? us : typeof t.valueOf != "function" && typeof t.toString != "function" || isNaN(t) ? ps : fs)(e, t);
}
function bs(e, t) {
	return e = +e, t = +t, function(n) {
		return Math.round(e * (1 - n) + t * n);
	};
}
var xs = 1e-12;
function Ss(e) {
	return ((e = Math.exp(e)) + 1 / e) / 2;
}
function Cs(e) {
	return ((e = Math.exp(e)) - 1 / e) / 2;
}
function ws(e) {
	return ((e = Math.exp(2 * e)) - 1) / (e + 1);
}
(function e(t, n, r) {
	function i(e, i) {
		var a = e[0], o = e[1], s = e[2], c = i[0], l = i[1], u = i[2], d = c - a, f = l - o, p = d * d + f * f, m, h;
		if (p < xs) h = Math.log(u / s) / t, m = function(e) {
			return [
				a + e * d,
				o + e * f,
				s * Math.exp(t * e * h)
			];
		};
		else {
			var g = Math.sqrt(p), _ = (u * u - s * s + r * p) / (2 * s * n * g), v = (u * u - s * s - r * p) / (2 * u * n * g), y = Math.log(Math.sqrt(_ * _ + 1) - _);
			h = (Math.log(Math.sqrt(v * v + 1) - v) - y) / t, m = function(e) {
				var r = e * h, i = Ss(y), c = s / (n * g) * (i * ws(t * r + y) - Cs(y));
				return [
					a + c * d,
					o + c * f,
					s * i / Ss(t * r + y)
				];
			};
		}
		return m.duration = Math.abs(h) * 1e3 * t / Math.SQRT2, m;
	}
	return i.rho = function(t) {
		var n = Math.max(.001, +t), r = n * n;
		return e(n, r, r * r);
	}, i;
})(Math.SQRT2, 2, 4);
function Ts(e) {
	return (function t(n) {
		n = +n;
		function r(t, r) {
			var i = e((t = $o(t)).h, (r = $o(r)).h), a = os(t.s, r.s), o = os(t.l, r.l), s = os(t.opacity, r.opacity);
			return function(e) {
				return t.h = i(e), t.s = a(e), t.l = o(e ** +n), t.opacity = s(e), t + "";
			};
		}
		return r.gamma = t, r;
	})(1);
}
Ts(is), Ts(os);
// node_modules/d3-format/dist/d3-format.mjs
function Es(e) {
	return Math.abs(e = Math.round(e)) >= 1e21 ? e.toLocaleString("en").replace(/,/g, "") : e.toString(10);
}
function Ds(e, t) {
	if (!isFinite(e) || e === 0) return null;
	var n = (e = t ? e.toExponential(t - 1) : e.toExponential()).indexOf("e"), r = e.slice(0, n);
	return [r.length > 1 ? r[0] + r.slice(2) : r, +e.slice(n + 1)];
}
function Os(e) {
	return e = Ds(Math.abs(e)), e ? e[1] : NaN;
}
function ks(e, t) {
	return function(n, r) {
		for (var i = n.length, a = [], o = 0, s = e[0], c = 0; i > 0 && s > 0 && (c + s + 1 > r && (s = Math.max(1, r - c)), a.push(n.substring(i -= s, i + s)), !((c += s + 1) > r));) s = e[o = (o + 1) % e.length];
		return a.reverse().join(t);
	};
}
function As(e) {
	return function(t) {
		return t.replace(/[0-9]/g, function(t) {
			return e[+t];
		});
	};
}
var js = /^(?:(.)?([<>=^]))?([+\-( ])?([$#])?(0)?(\d+)?(,)?(\.\d+)?(~)?([a-z%])?$/i;
function Ms(e) {
	if (!(t = js.exec(e))) throw Error("invalid format: " + e);
	var t;
	return new Ns({
		fill: t[1],
		align: t[2],
		sign: t[3],
		symbol: t[4],
		zero: t[5],
		width: t[6],
		comma: t[7],
		precision: t[8] && t[8].slice(1),
		trim: t[9],
		type: t[10]
	});
}
Ms.prototype = Ns.prototype;
function Ns(e) {
	this.fill = e.fill === void 0 ? " " : e.fill + "", this.align = e.align === void 0 ? ">" : e.align + "", this.sign = e.sign === void 0 ? "-" : e.sign + "", this.symbol = e.symbol === void 0 ? "" : e.symbol + "", this.zero = !!e.zero, this.width = e.width === void 0 ? void 0 : +e.width, this.comma = !!e.comma, this.precision = e.precision === void 0 ? void 0 : +e.precision, this.trim = !!e.trim, this.type = e.type === void 0 ? "" : e.type + "";
}
Ns.prototype.toString = function() {
	return this.fill + this.align + this.sign + this.symbol + (this.zero ? "0" : "") + (this.width === void 0 ? "" : Math.max(1, this.width | 0)) + (this.comma ? "," : "") + (this.precision === void 0 ? "" : "." + Math.max(0, this.precision | 0)) + (this.trim ? "~" : "") + this.type;
};
function Ps(e) {
	out: for (var t = e.length, n = 1, r = -1, i; n < t; ++n) switch (e[n]) {
		case ".":
			r = i = n;
			break;
		case "0":
			r === 0 && (r = n), i = n;
			break;
		default:
			if (!+e[n]) break out;
			r > 0 && (r = 0);
	}
	return r > 0 ? e.slice(0, r) + e.slice(i + 1) : e;
}
var Fs;
function Is(e, t) {
	var n = Ds(e, t);
	if (!n) return Fs = void 0, e.toPrecision(t);
	var r = n[0], i = n[1], a = i - (Fs = Math.max(-8, Math.min(8, Math.floor(i / 3))) * 3) + 1, o = r.length;
	return a === o ? r : a > o ? r + Array(a - o + 1).join("0") : a > 0 ? r.slice(0, a) + "." + r.slice(a) : "0." + Array(1 - a).join("0") + Ds(e, Math.max(0, t + a - 1))[0];
}
function Ls(e, t) {
	var n = Ds(e, t);
	if (!n) return e + "";
	var r = n[0], i = n[1];
	return i < 0 ? "0." + Array(-i).join("0") + r : r.length > i + 1 ? r.slice(0, i + 1) + "." + r.slice(i + 1) : r + Array(i - r.length + 2).join("0");
}
var Rs = {
	"%": (e, t) => (e * 100).toFixed(t),
	b: (e) => Math.round(e).toString(2),
	c: (e) => e + "",
	d: Es,
	e: (e, t) => e.toExponential(t),
	f: (e, t) => e.toFixed(t),
	g: (e, t) => e.toPrecision(t),
	o: (e) => Math.round(e).toString(8),
	p: (e, t) => Ls(e * 100, t),
	r: Ls,
	s: Is,
	X: (e) => Math.round(e).toString(16).toUpperCase(),
	x: (e) => Math.round(e).toString(16)
};
function zs(e) {
	return e;
}
var Bs = Array.prototype.map, Vs = [
	"y",
	"z",
	"a",
	"f",
	"p",
	"n",
	"µ",
	"m",
	"",
	"k",
	"M",
	"G",
	"T",
	"P",
	"E",
	"Z",
	"Y"
];
function Hs(e) {
	var t = e.grouping === void 0 || e.thousands === void 0 ? zs : ks(Bs.call(e.grouping, Number), e.thousands + ""), n = e.currency === void 0 ? "" : e.currency[0] + "", r = e.currency === void 0 ? "" : e.currency[1] + "", i = e.decimal === void 0 ? "." : e.decimal + "", a = e.numerals === void 0 ? zs : As(Bs.call(e.numerals, String)), o = e.percent === void 0 ? "%" : e.percent + "", s = e.minus === void 0 ? "−" : e.minus + "", c = e.nan === void 0 ? "NaN" : e.nan + "";
	function l(e, l) {
		e = Ms(e);
		var u = e.fill, d = e.align, f = e.sign, p = e.symbol, m = e.zero, h = e.width, g = e.comma, _ = e.precision, v = e.trim, y = e.type;
		y === "n" ? (g = !0, y = "g") : Rs[y] || (_ === void 0 && (_ = 12), v = !0, y = "g"), (m || u === "0" && d === "=") && (m = !0, u = "0", d = "=");
		var b = (l && l.prefix !== void 0 ? l.prefix : "") + (p === "$" ? n : p === "#" && /[boxX]/.test(y) ? "0" + y.toLowerCase() : ""), x = (p === "$" ? r : /[%p]/.test(y) ? o : "") + (l && l.suffix !== void 0 ? l.suffix : ""), S = Rs[y], C = /[defgprs%]/.test(y);
		_ = _ === void 0 ? 6 : /[gprs]/.test(y) ? Math.max(1, Math.min(21, _)) : Math.max(0, Math.min(20, _));
		function w(e) {
			var n = b, r = x, o, l, p;
			if (y === "c") r = S(e) + r, e = "";
			else {
				e = +e;
				var w = e < 0 || 1 / e < 0;
				if (e = isNaN(e) ? c : S(Math.abs(e), _), v && (e = Ps(e)), w && +e == 0 && f !== "+" && (w = !1), n = (w ? f === "(" ? f : s : f === "-" || f === "(" ? "" : f) + n, r = (y === "s" && !isNaN(e) && Fs !== void 0 ? Vs[8 + Fs / 3] : "") + r + (w && f === "(" ? ")" : ""), C) {
					for (o = -1, l = e.length; ++o < l;) if (p = e.charCodeAt(o), 48 > p || p > 57) {
						r = (p === 46 ? i + e.slice(o + 1) : e.slice(o)) + r, e = e.slice(0, o);
						break;
					}
				}
			}
			g && !m && (e = t(e, Infinity));
			var T = n.length + e.length + r.length, E = T < h ? Array(h - T + 1).join(u) : "";
			switch (g && m && (e = t(E + e, E.length ? h - r.length : Infinity), E = ""), d) {
				case "<":
					e = n + e + r + E;
					break;
				case "=":
					e = n + E + e + r;
					break;
				case "^":
					e = E.slice(0, T = E.length >> 1) + n + e + r + E.slice(T);
					break;
				default: e = E + n + e + r;
			}
			return a(e);
		}
		return w.toString = function() {
			return e + "";
		}, w;
	}
	function u(e, t) {
		var n = Math.max(-8, Math.min(8, Math.floor(Os(t) / 3))) * 3, r = 10 ** -n, i = l((e = Ms(e), e.type = "f", e), { suffix: Vs[8 + n / 3] });
		return function(e) {
			return i(r * e);
		};
	}
	return {
		format: l,
		formatPrefix: u
	};
}
var Us, Ws, Gs;
Ks({
	thousands: ",",
	grouping: [3],
	currency: ["$", ""]
});
function Ks(e) {
	return Us = Hs(e), Ws = Us.format, Gs = Us.formatPrefix, Us;
}
function qs(e) {
	return Math.max(0, -Os(Math.abs(e)));
}
function Js(e, t) {
	return Math.max(0, Math.max(-8, Math.min(8, Math.floor(Os(t) / 3))) * 3 - Os(Math.abs(e)));
}
function Ys(e, t) {
	return e = Math.abs(e), t = Math.abs(t) - e, Math.max(0, Os(t) - Os(e)) + 1;
}
// node_modules/d3-scale/dist/d3-scale.mjs
function Xs(e, t) {
	switch (arguments.length) {
		case 0: break;
		case 1:
			this.range(e);
			break;
		default: this.range(t).domain(e);
	}
	return this;
}
function Zs(e) {
	return function() {
		return e;
	};
}
function Qs(e) {
	return +e;
}
var $s = [0, 1];
function ec(e) {
	return e;
}
function tc(e, t) {
	return (t -= e = +e) ? function(n) {
		return (n - e) / t;
	} : Zs(isNaN(t) ? NaN : .5);
}
function nc(e, t) {
	var n;
	return e > t && (n = e, e = t, t = n), function(n) {
		return Math.max(e, Math.min(t, n));
	};
}
function rc(e, t, n) {
	var r = e[0], i = e[1], a = t[0], o = t[1];
	return i < r ? (r = tc(i, r), a = n(o, a)) : (r = tc(r, i), a = n(a, o)), function(e) {
		return a(r(e));
	};
}
function ic(e, t, n) {
	var r = Math.min(e.length, t.length) - 1, i = Array(r), a = Array(r), o = -1;
	for (e[r] < e[0] && (e = e.slice().reverse(), t = t.slice().reverse()); ++o < r;) i[o] = tc(e[o], e[o + 1]), a[o] = n(t[o], t[o + 1]);
	return function(t) {
		var n = ka(e, t, 1, r) - 1;
		return a[n](i[n](t));
	};
}
function ac(e, t) {
	return t.domain(e.domain()).range(e.range()).interpolate(e.interpolate()).clamp(e.clamp()).unknown(e.unknown());
}
function oc() {
	var e = $s, t = $s, n = ys, r, i, a, o = ec, s, c, l;
	function u() {
		var n = Math.min(e.length, t.length);
		return o !== ec && (o = nc(e[0], e[n - 1])), s = n > 2 ? ic : rc, c = l = null, d;
	}
	function d(i) {
		return i == null || isNaN(i = +i) ? a : (c ||= s(e.map(r), t, n))(r(o(i)));
	}
	return d.invert = function(n) {
		return o(i((l ||= s(t, e.map(r), fs))(n)));
	}, d.domain = function(t) {
		return arguments.length ? (e = Array.from(t, Qs), u()) : e.slice();
	}, d.range = function(e) {
		return arguments.length ? (t = Array.from(e), u()) : t.slice();
	}, d.rangeRound = function(e) {
		return t = Array.from(e), n = bs, u();
	}, d.clamp = function(e) {
		return arguments.length ? (o = e ? !0 : ec, u()) : o !== ec;
	}, d.interpolate = function(e) {
		return arguments.length ? (n = e, u()) : n;
	}, d.unknown = function(e) {
		return arguments.length ? (a = e, d) : a;
	}, function(e, t) {
		return r = e, i = t, u();
	};
}
function sc() {
	return oc()(ec, ec);
}
function cc(e, t, n, r) {
	var i = Ia(e, t, n), a;
	switch (r = Ms(r ?? ",f"), r.type) {
		case "s":
			var o = Math.max(Math.abs(e), Math.abs(t));
			return r.precision == null && !isNaN(a = Js(i, o)) && (r.precision = a), Gs(r, o);
		case "":
		case "e":
		case "g":
		case "p":
		case "r":
			r.precision == null && !isNaN(a = Ys(i, Math.max(Math.abs(e), Math.abs(t)))) && (r.precision = a - (r.type === "e"));
			break;
		case "f":
		case "%": r.precision == null && !isNaN(a = qs(i)) && (r.precision = a - (r.type === "%") * 2);
	}
	return Ws(r);
}
function lc(e) {
	var t = e.domain;
	return e.ticks = function(e) {
		var n = t();
		return Pa(n[0], n[n.length - 1], e ?? 10);
	}, e.tickFormat = function(e, n) {
		var r = t();
		return cc(r[0], r[r.length - 1], e ?? 10, n);
	}, e.nice = function(n) {
		n ??= 10;
		var r = t(), i = 0, a = r.length - 1, o = r[i], s = r[a], c, l, u = 10;
		for (s < o && (l = o, o = s, s = l, l = i, i = a, a = l); u-- > 0;) {
			if (l = Fa(o, s, n), l === c) return r[i] = o, r[a] = s, t(r);
			if (l > 0) o = Math.floor(o / l) * l, s = Math.ceil(s / l) * l;
			else if (l < 0) o = Math.ceil(o * l) / l, s = Math.floor(s * l) / l;
			else break;
			c = l;
		}
		return e;
	}, e;
}
function uc() {
	var e = sc();
	return e.copy = function() {
		return ac(e, uc());
	}, Xs.apply(e, arguments), lc(e);
}
// src/parts/Interval.svelte
var dc = /* @__PURE__ */ W("<line class=\"threshold\" y1=\"11\" y2=\"35\"></line>"), fc = /* @__PURE__ */ W("<path class=\"beside\"></path><text class=\"tick\" y=\"9\"> </text>", 1), pc = /* @__PURE__ */ W("<line class=\"bar\" y1=\"23\" y2=\"23\"></line>"), mc = /* @__PURE__ */ W("<svg data-chart=\"\" role=\"img\"><rect class=\"side\" y=\"14\" height=\"18\"></rect><line class=\"grid\" x1=\"8\" y1=\"23\" y2=\"23\"></line><!><text class=\"tick\" y=\"45\"> </text><!><!><circle class=\"mark\" cy=\"23\" r=\"4.5\"></circle></svg>"), hc = /* @__PURE__ */ U("<div class=\"interval\"><!></div>");
function gc(e, t) {
	Xe(t, !0);
	let n = /* @__PURE__ */ M(300), r = /* @__PURE__ */ A(() => t.entry.side === "within" ? [-t.entry.line, t.entry.line] : [t.entry.line]), i = /* @__PURE__ */ A(() => [
		t.entry.value,
		t.entry.low,
		t.entry.high,
		t.entry.beside,
		...V(r)
	].filter(Z)), a = /* @__PURE__ */ A(() => {
		let [e, t] = [Math.min(...V(i)), Math.max(...V(i))], r = (t - e || 1) * .12;
		return uc([e - r, t + r], [8, V(n) - 8]);
	}), o = /* @__PURE__ */ A(() => {
		let [e, n] = V(a).range();
		return t.entry.side === "within" ? [V(a)(-t.entry.line), V(a)(t.entry.line)] : t.entry.side === "above" ? [V(a)(t.entry.line), n] : [e, V(a)(t.entry.line)];
	}), s = (e) => e < 60 ? "start" : e > V(n) - 60 ? "end" : "middle";
	var c = hc(), l = P(c), u = (e) => {
		var i = mc();
		X(i, "height", 46);
		var c = P(i), l = L(c), u = L(l);
		Y(u, 17, () => V(r), J, (e, t) => {
			var n = dc();
			R((e, t) => {
				X(n, "x1", e), X(n, "x2", t);
			}, [() => V(a)(V(t)), () => V(a)(V(t))]), G(e, n);
		});
		var d = L(u), f = I(d), p = L(d), m = (e) => {
			var n = fc(), r = F(n), i = L(r), o = I(i);
			R((e, n, a, s) => {
				X(r, "d", e), X(i, "x", n), X(i, "text-anchor", a), K(o, `${t.entry.beside_says ?? ""} ${s ?? ""}`);
			}, [
				() => `M${V(a)(t.entry.beside)} 17l4 6-4 6-4-6z`,
				() => V(a)(t.entry.beside),
				() => s(V(a)(t.entry.beside)),
				() => Q(t.entry.beside)
			]), G(e, n);
		}, h = /* @__PURE__ */ A(() => Z(t.entry.beside));
		q(p, (e) => {
			V(h) && e(m);
		});
		var g = L(p), _ = (e) => {
			var n = pc();
			R((e, t) => {
				X(n, "x1", e), X(n, "x2", t);
			}, [() => V(a)(t.entry.low), () => V(a)(t.entry.high)]), G(e, n);
		}, v = /* @__PURE__ */ A(() => Z(t.entry.low) && Z(t.entry.high));
		q(g, (e) => {
			V(v) && e(_);
		});
		var y = L(g);
		k(i), R((e, t, r, a, s, u) => {
			X(i, "width", V(n)), X(i, "aria-label", e), X(c, "x", V(o)[0]), X(c, "width", t), X(l, "x2", V(n) - 8), X(d, "x", r), X(d, "text-anchor", a), K(f, `threshold ${s ?? ""}`), X(y, "cx", u);
		}, [
			() => `${t.entry.says}: ${Q(t.entry.value)} ${t.entry.unit}, from ${Q(t.entry.low)} to ${Q(t.entry.high)}; the threshold is ${Q(t.entry.line)}`,
			() => Math.max(0, V(o)[1] - V(o)[0]),
			() => V(a)(V(r).at(-1)),
			() => s(V(a)(V(r).at(-1))),
			() => Q(V(r).at(-1)),
			() => V(a)(t.entry.value)
		]), G(e, i);
	}, d = /* @__PURE__ */ A(() => Z(t.entry.value));
	q(l, (e) => {
		V(d) && e(u);
	}), k(c), Oi(c, "clientWidth", (e) => N(n, e)), G(e, c), Ze();
}
// src/views/Claims.svelte
var _c = /* @__PURE__ */ U("<option> </option>"), vc = /* @__PURE__ */ U("<label class=\"field\">Study<select></select></label>"), yc = /* @__PURE__ */ U("<button> </button>"), bc = /* @__PURE__ */ U(" <span class=\"dim number\"> </span>", 1), xc = /* @__PURE__ */ U("<span class=\"number\"> </span><!> <span class=\"dim\"> </span>", 1), Sc = /* @__PURE__ */ U("<span class=\"dim\"> </span>"), Cc = /* @__PURE__ */ U("<br/><span class=\"dim\"> </span>", 1), wc = /* @__PURE__ */ U("<div class=\"entry\"><p><b> </b><br/> <!> <!></p> <!></div>"), Tc = /* @__PURE__ */ U("<button class=\"quiet see\"> </button>"), Ec = /* @__PURE__ */ U("<li class=\"card claim\"><div><span aria-hidden=\"true\"> </span> </div> <div><h2> </h2> <p class=\"dim\"> </p> <!> <!></div></li>"), Dc = /* @__PURE__ */ U("<div class=\"claims-head\"><p class=\"lede\"> </p> <div class=\"filter\"><!> <span class=\"choice\" role=\"group\" aria-label=\"Show claims that\"><button> </button> <!></span> <button class=\"quiet\">CSV</button></div></div> <ol class=\"claims\"></ol>", 1);
function Oc(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ A(() => n.page.document.claims), i = /* @__PURE__ */ A(() => V(r)[Math.min(n.claims, V(r).length - 1)]), a = /* @__PURE__ */ A(() => [
		"holds",
		"fails",
		"inconclusive",
		"not asked"
	].map((e) => [e, V(i).claims.filter((t) => t.verdict === e).length])), o = /* @__PURE__ */ M(""), s = {
		holds: "✓",
		fails: "✕",
		inconclusive: "~",
		"not asked": "·"
	}, c = (e) => (e.view === "contexts" ? n.page.document.evaluations.length : n.page.document.runs.length) > 0;
	function l(e) {
		let t = n.page.document.runs.findIndex((t) => e.models.includes(t.name));
		t >= 0 && e.view !== "contexts" && n.chooseRun(t), n.view = e.view;
	}
	let u = () => ({
		head: [
			"claim",
			"paper",
			"statement",
			"verdict",
			"number",
			"value",
			"low",
			"high",
			"unit",
			"side",
			"threshold",
			"beside",
			"beside_value",
			"prompts",
			"verdict_of_number",
			"reason"
		],
		rows: V(i).claims.flatMap((e) => e.numbers.map((t) => [
			e.name,
			e.paper,
			e.statement,
			e.verdict,
			t.says,
			t.value,
			t.low,
			t.high,
			t.unit,
			t.side,
			t.line,
			t.beside_says,
			t.beside,
			t.prompts,
			t.verdict,
			t.reason || e.reason
		]))
	});
	var d = Dc(), f = F(d), p = P(f), m = I(p), h = L(p, 2), g = P(h), v = (e) => {
		var t = vc(), i = L(P(t));
		Y(i, 21, () => V(r), J, (e, t, n) => {
			var r = _c(), i = I(r, !0);
			r.value = r.__value = n, R((e) => K(i, e), [() => $(V(t).source)]), G(e, r);
		}), k(i), ui(i), k(t), di(i, () => n.claims, (e) => n.claims = e), G(e, t);
	};
	q(g, (e) => {
		V(r).length > 1 && e(v);
	});
	var y = L(g, 2), b = P(y), x = I(b);
	Y(L(b, 2), 17, () => V(a), J, (e, t) => {
		var n = /* @__PURE__ */ A(() => _(V(t), 2));
		let r = () => V(n)[0], i = () => V(n)[1];
		var a = yc(), s = I(a);
		R(() => {
			X(a, "aria-pressed", V(o) === r()), K(s, `${r() ?? ""} ${i() ?? ""}`);
		}), H("click", a, () => N(o, r(), !0)), G(e, a);
	}), k(y);
	var S = L(y, 2);
	k(h), k(f);
	var C = L(f, 2);
	Y(C, 21, () => V(i).claims.filter((e) => !V(o) || e.verdict === V(o)), (e) => e.name, (e, t) => {
		var n = Ec(), r = P(n), i = P(r), a = I(i, !0), o = L(i, 1, !0);
		k(r);
		var u = L(r, 2), d = P(u), f = I(d, !0), p = L(d, 2), m = I(p), h = L(p, 2);
		Y(h, 17, () => V(t).numbers, J, (e, n) => {
			var r = wc(), i = P(r), a = P(i), o = I(a, !0), s = L(a, 3), c = (e) => {
				var t = xc(), r = F(t), i = I(r), a = L(r), o = (e) => {
					var t = bc(), r = F(t, !0);
					r.nodeValue = " ";
					var i = I(L(r));
					R((e, t) => K(i, `[${e ?? ""}, ${t ?? ""}]`), [() => Q(V(n).low), () => Q(V(n).high)]), G(e, t);
				}, s = /* @__PURE__ */ A(() => Z(V(n).low));
				q(a, (e) => {
					V(s) && e(o);
				});
				var c = I(L(a, 2));
				R((e) => {
					K(i, `${e ?? ""} ${V(n).unit ?? ""}`), K(c, `n = ${V(n).prompts ?? ""}`);
				}, [() => Q(V(n).value, 4)]), G(e, t);
			}, l = /* @__PURE__ */ A(() => Z(V(n).value)), u = (e) => {
				var t = Sc(), r = I(t, !0);
				R((e) => K(r, e), [() => $(V(n).reason || "not measured")]), G(e, t);
			};
			q(s, (e) => {
				V(l) ? e(c) : e(u, -1);
			});
			var d = L(s, 2), f = (e) => {
				var t = Cc(), r = I(L(F(t)), !0);
				R(() => K(r, V(n).verdict)), G(e, t);
			};
			q(d, (e) => {
				V(t).numbers.length > 1 && e(f);
			}), k(i), gc(L(i, 2), { get entry() {
				return V(n);
			} }), k(r), R((e) => K(o, e), [() => $(V(n).says)]), G(e, r);
		});
		var g = L(h, 2), _ = (e) => {
			var n = Tc(), r = I(n);
			R(() => K(r, `See it in ${Wi[V(t).view] ?? ""} →`)), H("click", n, () => l(V(t))), G(e, n);
		}, v = /* @__PURE__ */ A(() => c(V(t)));
		q(g, (e) => {
			V(v) && e(_);
		}), k(u), k(n), R((e, n, i, c, l) => {
			ii(r, 1, `verdict ${e ?? ""}`), K(a, s[V(t).verdict] ?? "·"), K(o, V(t).verdict), K(f, n), K(m, `${i ?? ""} · holds if ${c ?? ""}${l ?? ""}`);
		}, [
			() => V(t).verdict.replace(" ", "-"),
			() => $(V(t).statement),
			() => $(V(t).paper),
			() => $(V(t).rule),
			() => V(t).reason ? ` · ${$(V(t).reason)}` : ""
		]), G(e, n);
	}), k(C), R((e, t) => {
		K(m, `What papers claim, checked on ${e ?? ""}: ${V(i).about.questions ?? "?" ?? ""} questions in each context, ${V(i).about.traced ?? "?" ?? ""} traced texts. ${t ?? ""}`), X(b, "aria-pressed", V(o) === ""), K(x, `all ${V(i).claims.length ?? ""}`);
	}, [() => Object.entries(V(i).about).filter(([e]) => ![
		"questions",
		"traced",
		"seed"
	].includes(e)).map(([, e]) => $(e)).join(", "), () => $(V(i).caution)]), H("click", b, () => N(o, "")), H("click", S, () => ba("claims.csv", "text/csv;charset=utf-8", _a(u()))), G(e, d), Ze();
}
Cr(["click"]);
// src/lib/load.svelte.ts
var kc = class {
	#e = /* @__PURE__ */ M(null);
	get value() {
		return V(this.#e);
	}
	set value(e) {
		N(this.#e, e);
	}
	#t = /* @__PURE__ */ M("");
	get wrong() {
		return V(this.#t);
	}
	set wrong(e) {
		N(this.#t, e, !0);
	}
	constructor(e) {
		Cn(() => {
			let t = !1;
			return e().then((e) => {
				t || ([this.value, this.wrong] = [e, ""]);
			}, (e) => {
				t || (this.wrong = String(e));
			}), () => void (t = !0);
		});
	}
}, Ac = /* @__PURE__ */ U("<button class=\"quiet\"> </button>"), jc = /* @__PURE__ */ U("<button class=\"quiet\">SVG</button> <button class=\"quiet\">PNG</button>", 1), Mc = /* @__PURE__ */ U("<p class=\"failed\" role=\"alert\"> </p>"), Nc = /* @__PURE__ */ U("<th scope=\"col\"> </th>"), Pc = /* @__PURE__ */ U("<td> </td>"), Fc = /* @__PURE__ */ U("<tr></tr>"), Ic = /* @__PURE__ */ U("<p class=\"note\"> </p>"), Lc = /* @__PURE__ */ U("<div class=\"scroll\" tabindex=\"0\" role=\"region\"><table><thead><tr></tr></thead><tbody></tbody></table></div> <!>", 1), Rc = /* @__PURE__ */ U("<section class=\"card\"><header><h3> </h3> <div class=\"tools\"><!> <!> <button class=\"quiet\">CSV</button> <!></div></header> <!> <div><!></div> <!></section>");
function zc(e, t) {
	Xe(t, !0);
	let n = Ni(t, "note", 3, ""), r = Ni(t, "drawn", 3, !0), i = /* @__PURE__ */ M(!1), a, o = /* @__PURE__ */ M(""), s = /* @__PURE__ */ A(() => V(i) ? t.table() : null);
	function c() {
		let e = a.querySelector("svg[data-chart]");
		if (!e) return null;
		let { width: t, height: n } = e.getBoundingClientRect(), r = getComputedStyle(a.closest(".card")).backgroundColor;
		return {
			text: ya(e, r),
			width: t,
			height: n
		};
	}
	async function l(e) {
		N(o, "");
		try {
			if (e === "csv") return ba(Sa(t.title, "csv"), "text/csv;charset=utf-8", _a(t.table()));
			let n = c();
			if (!n) return void N(o, "Show the chart to save it as a picture.");
			if (e === "svg") return ba(Sa(t.title, "svg"), "image/svg+xml", n.text);
			ba(Sa(t.title, "png"), "image/png", await xa(n.text, n.width, n.height));
		} catch (e) {
			N(o, String(e), !0);
		}
	}
	var u = Rc(), d = P(u), f = P(d), p = I(f, !0), h = L(f, 2), g = P(h);
	Qr(g, () => t.tools ?? m);
	var _ = L(g, 2), v = (e) => {
		var t = Ac(), n = I(t, !0);
		R(() => {
			X(t, "aria-pressed", V(i)), K(n, V(i) ? "Chart" : "Table");
		}), H("click", t, () => N(i, !V(i))), G(e, t);
	};
	q(_, (e) => {
		r() && e(v);
	});
	var y = L(_, 2), b = L(y, 2), x = (e) => {
		var t = jc(), n = F(t), r = L(n, 2);
		R(() => {
			n.disabled = V(i), r.disabled = V(i);
		}), H("click", n, () => l("svg")), H("click", r, () => l("png")), G(e, t);
	};
	q(b, (e) => {
		r() && e(x);
	}), k(h), k(d);
	var S = L(d, 2), C = (e) => {
		var t = Mc(), n = I(t, !0);
		R(() => K(n, V(o))), G(e, t);
	};
	q(S, (e) => {
		V(o) && e(C);
	});
	var w = L(S, 2), T = P(w), E = (e) => {
		var n = Lc(), r = F(n), i = P(r), a = P(i), o = P(a);
		Y(o, 21, () => V(s).head, J, (e, t) => {
			var n = Nc(), r = I(n, !0);
			R(() => K(r, V(t))), G(e, n);
		}), k(o), k(a);
		var c = L(a);
		Y(c, 21, () => V(s).rows.slice(0, 400), J, (e, t) => {
			var n = Fc();
			Y(n, 21, () => V(t), J, (e, t) => {
				var n = Pc();
				let r;
				var i = I(n, !0);
				R((e) => {
					r = ii(n, 1, "", null, r, { number: typeof V(t) == "number" }), K(i, e);
				}, [() => typeof V(t) == "string" ? Hi(V(t)) : Q(V(t), 5)]), G(e, n);
			}), k(n), G(e, n);
		}), k(c), k(i), k(r);
		var l = L(r, 2), u = (e) => {
			var t = Ic(), n = I(t);
			R(() => K(n, `The first 400 of ${V(s).rows.length ?? ""} rows; the CSV has all.`)), G(e, t);
		};
		q(l, (e) => {
			V(s).rows.length > 400 && e(u);
		}), R(() => X(r, "aria-label", `${t.title}, as a table`)), G(e, n);
	}, ee = (e) => {
		var n = Nr();
		Qr(F(n), () => t.children), G(e, n);
	};
	q(T, (e) => {
		V(s) ? e(E) : e(ee, -1);
	}), k(w), Ai(w, (e) => a = e, () => a);
	var te = L(w, 2), ne = (e) => {
		var t = Ic(), r = I(t, !0);
		R(() => K(r, n())), G(e, t);
	};
	q(te, (e) => {
		n() && e(ne);
	}), k(u), R(() => K(p, t.title)), H("click", y, () => l("csv")), G(e, u), Ze();
}
Cr(["click"]);
// src/lib/colour.ts
var Bc = (/* @__PURE__ */ "#00224e.#00285b.#002e6a.#053371.#1a386f.#273e6e.#32436d.#3b496c.#434e6c.#4b546c.#535a6d.#5a5f6e.#61656f.#686a71.#6f7073.#767676.#7d7c78.#848279.#8c8878.#938e78.#9b9476.#a39a74.#aba072.#b4a76f.#bcae6c.#c4b468.#cdbb63.#d5c25e.#dec958.#e7d150.#f0d846.#f9e03a.#fee838".split(".")).map((e) => [
	1,
	3,
	5
].map((t) => parseInt(e.slice(t, t + 2), 16)));
function Vc(e) {
	let t = Math.min(1, Math.max(0, e)) * (Bc.length - 1), n = Math.min(Bc.length - 2, Math.floor(t)), r = t - n;
	return Bc[n].map((e, t) => Math.round(e + (Bc[n + 1][t] - e) * r));
}
function Hc([e, t, n]) {
	let r = [
		e,
		t,
		n
	].map((e) => e / 255 <= .04045 ? e / 255 / 12.92 : ((e / 255 + .055) / 1.055) ** 2.4), i = .2126 * r[0] + .7152 * r[1] + .0722 * r[2];
	return (i + .05) / .05 > 1.05 / (i + .05) ? "#000" : "#fff";
}
var Uc = Array.from({ length: 64 }, (e, t) => {
	let n = Vc(t / 63);
	return {
		ground: `rgb(${n.join(",")})`,
		ink: Hc(n)
	};
});
function Wc(e) {
	return Uc[Math.round(Math.min(1, Math.max(0, e)) * 63)];
}
function Gc(e, t) {
	return e === "lift" ? t ? {
		low: 1 / 8,
		high: 64,
		log: t
	} : {
		low: 0,
		high: 16,
		log: t
	} : t ? {
		low: 5e-4,
		high: 1,
		log: t
	} : {
		low: 0,
		high: .5,
		log: t
	};
}
function Kc(e, t) {
	return e.log ? t <= 0 ? 0 : Math.log(t / e.low) / Math.log(e.high / e.low) : (t - e.low) / (e.high - e.low);
}
var qc = [
	"",
	"7 3",
	"2 3",
	"9 3 2 3",
	"12 4",
	"4 2",
	"1 2"
], Jc = /* @__PURE__ */ W("<line class=\"grid\"></line><text class=\"tick\" text-anchor=\"end\"> </text>", 1), Yc = /* @__PURE__ */ W("<text class=\"tick\" text-anchor=\"middle\"> </text>"), Xc = /* @__PURE__ */ W("<line class=\"cursor\"></line>"), Zc = /* @__PURE__ */ W("<line></line>"), Qc = /* @__PURE__ */ W("<path></path>"), $c = /* @__PURE__ */ W("<rect width=\"5.2\" height=\"5.2\"></rect>"), el = /* @__PURE__ */ W("<circle r=\"2.7\"></circle>"), tl = /* @__PURE__ */ W("<!><!>", 1), nl = /* @__PURE__ */ W("<!><!><!>", 1), rl = /* @__PURE__ */ W("<text class=\"tick\" text-anchor=\"middle\">no numbers here</text>"), il = /* @__PURE__ */ W("<line x1=\"0\" x2=\"26\" y1=\"5\" y2=\"5\"></line>"), al = /* @__PURE__ */ W("<rect x=\"10.4\" y=\"2.4\" width=\"5.2\" height=\"5.2\"></rect>"), ol = /* @__PURE__ */ W("<path d=\"M13 1.4l3.6 6.4h-7.2z\"></path>"), sl = /* @__PURE__ */ W("<circle cx=\"13\" cy=\"5\" r=\"2.7\"></circle>"), cl = /* @__PURE__ */ U("<li><svg width=\"26\" height=\"10\" aria-hidden=\"true\"><!><!></svg> </li>"), ll = /* @__PURE__ */ U("<li><svg width=\"26\" height=\"10\" aria-hidden=\"true\"><line class=\"null c0\" x1=\"0\" x2=\"26\" y1=\"5\" y2=\"5\"></line></svg> </li>"), ul = /* @__PURE__ */ U("<div class=\"plot\"><svg data-chart=\"\" role=\"img\"><text class=\"axis-label\" y=\"11\"> </text><!><!><text class=\"axis-label\" text-anchor=\"end\"> </text><!><!><!></svg> <ul class=\"legend\"><!> <!></ul></div>");
function dl(e, t) {
	Xe(t, !0);
	let n = Ni(t, "at", 3, null), r = Ni(t, "height", 3, 190), i = Ni(t, "zero", 3, !1), a = Ni(t, "unit", 3, ""), o = Zi(), s = /* @__PURE__ */ M(320), c = /* @__PURE__ */ A(() => t.series.flatMap((e) => [
		e.values,
		e.nulls ?? [],
		e.low ?? [],
		e.high ?? []
	].flat()).filter(Z)), l = /* @__PURE__ */ A(() => t.x.every((e) => typeof e == "number") && t.x.length > 1), u = /* @__PURE__ */ A(() => {
		let e = [50, V(s) - 12 - 6];
		if (!V(l)) return (n) => e[0] + (n + .5) / t.x.length * (e[1] - e[0]);
		let n = uc([Math.min(...t.x), Math.max(...t.x)], e);
		return (e) => n(t.x[e]);
	}), d = ea(() => t.label, () => V(c).length ? [Math.min(...V(c), ...i() ? [0] : []), Math.max(...V(c), ...i() ? [0] : [])] : null), f = /* @__PURE__ */ A(() => {
		let [e, n] = t.domain ?? d() ?? [0, 1];
		return uc(e === n ? [e - .5, n + .5] : [e, n], [r() - 34, 18]).nice(4);
	}), p = /* @__PURE__ */ A(() => {
		let e = Math.max(2, Math.floor((V(s) - 44) / (V(l) ? 44 : 74))), n = Math.ceil(t.x.length / e);
		return [...t.x.keys()].filter((e) => e % n === 0);
	}), m = (e) => e.points || e.low ? (t.series.indexOf(e) - (t.series.length - 1) / 2) * (e.points ? 9 : 5) : 0;
	function h(e, t = 0) {
		let n = "", r = !1;
		return e.forEach((e, i) => {
			if (!Z(e)) return void (r = !1);
			n += `${r ? "L" : "M"}${(V(u)(i) + t).toFixed(1)} ${V(f)(e).toFixed(1)}`, r = !0;
		}), n;
	}
	function g(e) {
		let n = e.currentTarget.getBoundingClientRect(), r = (e.clientX - n.left) / n.width * V(s), i = 0;
		for (let e = 1; e < t.x.length; e++) Math.abs(V(u)(e) - r) < Math.abs(V(u)(i) - r) && (i = e);
		return i;
	}
	function _(e) {
		if (!t.x.length) return;
		let n = g(e), r = t.series.flatMap((e) => {
			let t = e.values[n], r = Z(e.low?.[n]) ? ` [${Q(e.low[n])}, ${Q(e.high?.[n])}]` : "", i = e.nulls ? [[e.nullName ?? `${e.name}, null`, `${Q(e.nulls[n])} ${a()}`]] : [];
			return [[e.name, `${Q(t)}${Z(t) && a() ? ` ${a()}` : ""}${r}`], ...i];
		});
		o.hover = {
			x: e.clientX,
			y: e.clientY,
			title: `${t.xLabel} ${t.x[n]}`,
			lines: r
		};
	}
	var v = ul(), y = P(v);
	let b;
	var x = P(y);
	X(x, "x", 44);
	var S = I(x, !0), C = L(x);
	Y(C, 17, () => V(f).ticks(4), J, (e, t) => {
		var n = Jc(), r = F(n);
		X(r, "x1", 44);
		var i = L(r);
		X(i, "x", 38);
		var a = I(i, !0);
		R((e, t, n, o) => {
			X(r, "x2", V(s) - 12), X(r, "y1", e), X(r, "y2", t), X(i, "y", n), K(a, o);
		}, [
			() => V(f)(V(t)),
			() => V(f)(V(t)),
			() => V(f)(V(t)) + 3.5,
			() => Q(V(t), 2)
		]), G(e, n);
	});
	var w = L(C);
	Y(w, 17, () => V(p), J, (e, n) => {
		var i = Yc(), a = I(i, !0);
		R((e) => {
			X(i, "x", e), X(i, "y", r() - 34 + 15), K(a, t.x[V(n)]);
		}, [() => V(u)(V(n))]), G(e, i);
	});
	var T = L(w), E = I(T, !0), ee = L(T), te = (e) => {
		var t = Xc();
		X(t, "y1", 18), R((e, n) => {
			X(t, "x1", e), X(t, "x2", n), X(t, "y2", r() - 34);
		}, [() => V(u)(n()), () => V(u)(n())]), G(e, t);
	};
	q(ee, (e) => {
		n() !== null && n() < t.x.length && e(te);
	});
	var ne = L(ee);
	Y(ne, 17, () => t.series, J, (e, n) => {
		var r = nl(), i = F(r), a = (e) => {
			var t = Nr(), r = F(t), i = (e) => {
				var t = Nr();
				Y(F(t), 17, () => V(n).nulls, J, (e, t, r) => {
					var i = Nr(), a = F(i), o = (e) => {
						var i = Zc();
						R((e, t, r, a) => {
							ii(i, 0, `null c${V(n).colour ?? ""}`), X(i, "x1", e), X(i, "x2", t), X(i, "y1", r), X(i, "y2", a);
						}, [
							() => V(u)(r) - 16,
							() => V(u)(r) + 16,
							() => V(f)(V(t)),
							() => V(f)(V(t))
						]), G(e, i);
					}, s = /* @__PURE__ */ A(() => Z(V(t)));
					q(a, (e) => {
						V(s) && e(o);
					}), G(e, i);
				}), G(e, t);
			}, a = (e) => {
				var t = Qc();
				R((e) => {
					ii(t, 0, `null c${V(n).colour ?? ""}`), X(t, "d", e);
				}, [() => h(V(n).nulls)]), G(e, t);
			};
			q(r, (e) => {
				V(n).points ? e(i) : e(a, -1);
			}), G(e, t);
		};
		q(i, (e) => {
			V(n).nulls && e(a);
		});
		var o = L(i), s = (e) => {
			var t = Qc();
			R((e) => {
				ii(t, 0, `line c${V(n).colour ?? ""}`), X(t, "d", e), X(t, "stroke-dasharray", qc[V(n).colour]);
			}, [() => h(V(n).values, m(V(n)))]), G(e, t);
		};
		q(o, (e) => {
			V(n).points || e(s);
		}), Y(L(o), 17, () => V(n).values, J, (e, r, i) => {
			var a = Nr(), o = F(a), s = (e) => {
				var a = tl(), o = F(a), s = (e) => {
					var t = Zc();
					R((e, r, i, a) => {
						ii(t, 0, `interval c${V(n).colour ?? ""}`), X(t, "x1", e), X(t, "x2", r), X(t, "y1", i), X(t, "y2", a);
					}, [
						() => V(u)(i) + m(V(n)),
						() => V(u)(i) + m(V(n)),
						() => V(f)(V(n).low[i]),
						() => V(f)(V(n).high[i])
					]), G(e, t);
				}, c = /* @__PURE__ */ A(() => Z(V(n).low?.[i]) && Z(V(n).high?.[i]));
				q(o, (e) => {
					V(c) && e(s);
				});
				var l = L(o), d = (e) => {
					let t = /* @__PURE__ */ A(() => V(u)(i) + m(V(n)));
					var a = Nr(), o = F(a), s = (e) => {
						var i = $c();
						R((e) => {
							ii(i, 0, `dot c${V(n).colour ?? ""}`), X(i, "x", V(t) - 2.6), X(i, "y", e);
						}, [() => V(f)(V(r)) - 2.6]), G(e, i);
					}, c = (e) => {
						var i = Qc();
						R((e) => {
							ii(i, 0, `dot c${V(n).colour ?? ""}`), X(i, "d", e);
						}, [() => `M${V(t)} ${V(f)(V(r)) - 3.6}l3.6 6.4h-7.2z`]), G(e, i);
					}, l = (e) => {
						var i = el();
						R((e) => {
							ii(i, 0, `dot c${V(n).colour ?? ""}`), X(i, "cx", V(t)), X(i, "cy", e);
						}, [() => V(f)(V(r))]), G(e, i);
					};
					q(o, (e) => {
						V(n).colour % 3 == 1 ? e(s) : V(n).colour % 3 == 2 ? e(c, 1) : e(l, -1);
					}), G(e, a);
				};
				q(l, (e) => {
					(V(n).points || t.x.length <= 24) && e(d);
				}), G(e, a);
			}, c = /* @__PURE__ */ A(() => Z(V(r)));
			q(o, (e) => {
				V(c) && e(s);
			}), G(e, a);
		}), G(e, r);
	});
	var re = L(ne), ie = (e) => {
		var t = rl();
		R(() => {
			X(t, "x", V(s) / 2), X(t, "y", r() / 2);
		}), G(e, t);
	};
	q(re, (e) => {
		V(c).length || e(ie);
	}), k(y);
	var ae = L(y, 2), oe = P(ae);
	Y(oe, 17, () => t.series, J, (e, t) => {
		var n = cl(), r = P(n), i = P(r), a = (e) => {
			var n = il();
			R(() => {
				ii(n, 0, `line c${V(t).colour ?? ""}`), X(n, "stroke-dasharray", qc[V(t).colour]);
			}), G(e, n);
		};
		q(i, (e) => {
			V(t).points || e(a);
		});
		var o = L(i), s = (e) => {
			var n = al();
			R(() => ii(n, 0, `dot c${V(t).colour ?? ""}`)), G(e, n);
		}, c = (e) => {
			var n = ol();
			R(() => ii(n, 0, `dot c${V(t).colour ?? ""}`)), G(e, n);
		}, l = (e) => {
			var n = sl();
			R(() => ii(n, 0, `dot c${V(t).colour ?? ""}`)), G(e, n);
		};
		q(o, (e) => {
			V(t).colour % 3 == 1 ? e(s) : V(t).colour % 3 == 2 ? e(c, 1) : e(l, -1);
		}), k(r);
		var u = L(r);
		k(n), R((e) => K(u, ` ${V(t).name ?? ""}${e ?? ""}`), [() => V(t).values.some(Z) ? "" : " (none here)"]), G(e, n);
	});
	var se = L(oe, 2), ce = (e) => {
		var n = ll(), r = L(P(n));
		k(n), R((e) => K(r, ` ${e ?? ""}`), [() => t.series.find((e) => e.nulls)?.nullName ?? "null"]), G(e, n);
	}, le = /* @__PURE__ */ A(() => t.series.some((e) => e.nulls));
	q(se, (e) => {
		V(le) && e(ce);
	}), k(ae), k(v), R(() => {
		X(y, "aria-label", t.label), X(y, "viewBox", `0 0 ${V(s)} ${r()}`), X(y, "height", r()), b = ii(y, 0, "", null, b, { pickable: t.pick }), K(S, t.yLabel), X(T, "x", V(s) - 12), X(T, "y", r() - 3), K(E, t.xLabel);
	}), H("pointermove", y, _), Sr("pointerleave", y, () => o.hover = null), H("click", y, (e) => t.pick?.(g(e))), Oi(v, "clientWidth", (e) => N(s, e)), G(e, v), Ze();
}
Cr(["pointermove", "click"]);
// src/views/Contexts.svelte
var fl = /* @__PURE__ */ U("<option> </option>"), pl = /* @__PURE__ */ U("<label class=\"field\">Evaluation<select></select></label>"), ml = /* @__PURE__ */ U("<button> </button>"), hl = /* @__PURE__ */ U("<p class=\"note\"> </p>"), gl = /* @__PURE__ */ U("<th scope=\"col\"><button class=\"sort\"> </button></th>"), _l = /* @__PURE__ */ U("<button class=\"link\"> </button>"), vl = /* @__PURE__ */ U("<td><!></td>"), yl = /* @__PURE__ */ U("<tr></tr>"), bl = /* @__PURE__ */ U("<section class=\"card wide-card\"><header><h3>Everything as a table</h3></header> <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All numbers of the evaluation\"><table><thead><tr></tr></thead><tbody></tbody></table></div></section>"), xl = /* @__PURE__ */ U("<span class=\"reply\"><span class=\"dim\"> </span> </span>"), Sl = /* @__PURE__ */ U("<h3> </h3> <p class=\"dim\"> </p> <pre> </pre> <p>wrote: <bdi> </bdi></p>", 1), Cl = /* @__PURE__ */ U("<details class=\"card\"><summary><b> </b> <span class=\"dim\">answer</span> <!></summary> <!></details>"), wl = /* @__PURE__ */ U("<section class=\"answers\" aria-label=\"Questions\"><h2> </h2> <p class=\"dim\"> </p> <!></section>"), Tl = /* @__PURE__ */ U("<p class=\"note\">No questions are kept for this point.</p>"), El = /* @__PURE__ */ U("<div class=\"filter\"><!> <span class=\"choice\" role=\"group\" aria-label=\"Outcome\"></span></div> <p class=\"lede\">Means with 95 % intervals over questions. Click a point to read its questions, prompts and answers.</p> <!> <div class=\"grid\"><!> <!> <!></div> <!> <!>", 1);
function Dl(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ A(() => n.page.document.evaluations), i = /* @__PURE__ */ A(() => V(r)[Math.min(n.table, V(r).length - 1)]), a = /* @__PURE__ */ A(() => [...new Set(V(i).points.map((e) => e.outcome))]), o = /* @__PURE__ */ A(() => V(a).includes(n.outcome) ? n.outcome : V(a)[0]), s = /* @__PURE__ */ A(() => V(i).points.filter((e) => e.outcome === V(o))), c = /* @__PURE__ */ A(() => V(s).filter((e) => e.quantity === "mean")), l = /* @__PURE__ */ A(() => V(c).filter((e) => !e.intervention)), u = ["closed-book", "gold"], d = {
		accuracy: "share of questions",
		log_likelihood: "nats",
		exact_match: "share of questions",
		f1: "F1"
	}, f = /* @__PURE__ */ A(() => V(o).replaceAll("_", " ")), p = (e) => [...new Set(e)], m = /* @__PURE__ */ A(() => p(V(c).map((e) => e.context))), h = /* @__PURE__ */ A(() => p(V(l).map((e) => e.context)).filter((e) => u.includes(e))), g = /* @__PURE__ */ A(() => p(V(l).filter((e) => !u.includes(e.context)).map((e) => e.kind))), v = (e) => p(V(l).filter((t) => t.kind === e && !u.includes(t.context)).map((e) => e.context)), y = (e) => e.replace(/^[a-z-]+:/, "").replace(/,passages=\d+/, "");
	function b(e, t, n, r = {}) {
		return V(i).models.map((i, a) => {
			let o = t.map((t) => e.find((e) => e.model === i && n(e) === t));
			return {
				name: $(i),
				colour: a,
				values: o.map((e) => e?.estimate ?? null),
				low: o.map((e) => e?.low ?? null),
				high: o.map((e) => e?.high ?? null),
				...r
			};
		});
	}
	function x(e, t) {
		if (V(o) === "log_likelihood") return e;
		let n = t.map((e) => V(l).find((t) => t.context === e)?.shortcut ?? null);
		return n.some(Z) ? [{
			...e[0],
			nulls: n,
			nullName: "shortcut: ignoring who is asked about"
		}, ...e.slice(1)] : e;
	}
	let S = (e) => [
		e.context,
		e.intervention,
		e.control
	].join(" | "), C = {
		"": "",
		count: "as many keys",
		mass: "as much attention",
		heads: "as many heads"
	}, w = /* @__PURE__ */ A(() => V(s).filter((e) => e.quantity === "damage")), T = /* @__PURE__ */ A(() => p(V(w).map((e) => e.context))), E = (e) => p(V(w).filter((t) => t.context === e).map((e) => [e.intervention, C[e.control] ?? e.control].filter(Boolean).join(", control: "))), ee = (e) => [e.intervention, C[e.control] ?? e.control].filter(Boolean).join(", control: "), te = /* @__PURE__ */ A(() => V(s).filter((e) => [
		"interaction",
		"gain",
		"damage beyond control",
		"damage per removed",
		"slope",
		"slope difference"
	].includes(e.quantity))), ne = /* @__PURE__ */ M("quantity"), re = /* @__PURE__ */ M(!1), ie = [
		["quantity", "quantity"],
		["model", "model"],
		["other", "minus"],
		["context", "context"],
		["intervention", "intervention"],
		["control", "control"],
		["estimate", "value"],
		["low", "low"],
		["high", "high"],
		["samples", "questions"],
		["p_value", "p"],
		["shortcut", "shortcut"],
		["removed", "removed"],
		["reason", "reason"]
	], ae = /* @__PURE__ */ A(() => [...V(s)].sort((e, t) => {
		let [n, r] = [e[V(ne)], t[V(ne)]], i = typeof n == "number" && typeof r == "number" ? n - r : String(n ?? "").localeCompare(String(r ?? ""), "en", { numeric: !0 });
		return V(re) ? -i : i;
	})), oe = (e) => () => ({
		head: ie.map(([, e]) => e),
		rows: e.map((e) => ie.map(([t]) => e[t]))
	}), se = /* @__PURE__ */ A(() => V(c).filter((e) => S(e) === n.point && e.answers)), ce = new kc(async () => {
		let e = V(se).map((e) => [e.model, e.answers]);
		return Promise.all(e.map(async ([e, t]) => [e, await n.page.answers(t)]));
	}), le = /* @__PURE__ */ A(() => ce.value?.length ? ce.value[0][1].map((e) => ({
		first: e,
		of: ce.value.map(([t, n]) => [t, n.find((t) => t.sample === e.sample)])
	})) : []), ue = /* @__PURE__ */ M(void 0);
	function de(e, t = "", r = "") {
		n.point = [
			e,
			t,
			r
		].join(" | "), setTimeout(() => V(ue)?.scrollIntoView({
			block: "nearest",
			behavior: "smooth"
		}), 100);
	}
	var fe = El(), pe = F(fe), me = P(pe), he = (e) => {
		var t = pl(), i = L(P(t));
		Y(i, 21, () => V(r), J, (e, t, n) => {
			var r = fl(), i = I(r, !0);
			r.value = r.__value = n, R((e) => K(i, e), [() => $(V(t).name)]), G(e, r);
		}), k(i), ui(i), k(t), di(i, () => n.table, (e) => n.table = e), G(e, t);
	};
	q(me, (e) => {
		V(r).length > 1 && e(he);
	});
	var ge = L(me, 2);
	Y(ge, 21, () => V(a), J, (e, t) => {
		var r = ml(), i = I(r, !0);
		R((e) => {
			X(r, "aria-pressed", V(t) === V(o)), K(i, e);
		}, [() => V(t).replaceAll("_", " ")]), H("click", r, () => n.outcome = V(t)), G(e, r);
	}), k(ge), k(pe);
	var _e = L(pe, 4);
	Y(_e, 17, () => Object.entries(n.page.leftOut), J, (e, t) => {
		var n = /* @__PURE__ */ A(() => _(V(t), 2));
		let r = () => V(n)[0], i = () => V(n)[1];
		var a = hl(), o = I(a);
		R((e, t) => K(o, `${e ?? ""} is left out: ${t ?? ""}`), [() => $(r()), () => $(i())]), G(e, a);
	});
	var ve = L(_e, 2), ye = P(ve), be = (e) => {
		{
			let t = /* @__PURE__ */ A(() => `Brackets: ${V(f)}`), n = /* @__PURE__ */ A(() => oe(V(l).filter((e) => u.includes(e.context))));
			zc(e, {
				get title() {
					return V(t);
				},
				get table() {
					return V(n);
				},
				children: (e, t) => {
					{
						let t = /* @__PURE__ */ A(() => `${V(f)} of the brackets`), n = /* @__PURE__ */ A(() => d[V(o)] ?? V(f)), r = /* @__PURE__ */ A(() => V(o) === "log_likelihood" ? void 0 : [0, 1]), i = /* @__PURE__ */ A(() => x(b(V(l), V(h), (e) => e.context, { points: !0 }), V(h)));
						dl(e, {
							get label() {
								return V(t);
							},
							get x() {
								return V(h);
							},
							xLabel: "context",
							get yLabel() {
								return V(n);
							},
							get domain() {
								return V(r);
							},
							get series() {
								return V(i);
							},
							pick: (e) => de(V(h)[e]),
							height: 220
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
	};
	q(ye, (e) => {
		V(h).length && e(be);
	});
	var xe = L(ye, 2);
	Y(xe, 17, () => V(g), J, (e, t) => {
		let n = /* @__PURE__ */ A(() => v(V(t)));
		{
			let r = /* @__PURE__ */ A(() => `${V(t)}: ${V(f)}`), i = /* @__PURE__ */ A(() => oe(V(l).filter((e) => e.kind === V(t))));
			zc(e, {
				get title() {
					return V(r);
				},
				get table() {
					return V(i);
				},
				children: (e, r) => {
					{
						let r = /* @__PURE__ */ A(() => `${V(f)} by ${V(t)}`), i = /* @__PURE__ */ A(() => V(n).map(y)), a = /* @__PURE__ */ A(() => d[V(o)] ?? V(f)), s = /* @__PURE__ */ A(() => V(o) === "log_likelihood" ? void 0 : [0, 1]), c = /* @__PURE__ */ A(() => x(b(V(l), V(n), (e) => e.context, { points: V(t) === "layout" || V(n).length === 1 }), V(n)));
						dl(e, {
							get label() {
								return V(r);
							},
							get x() {
								return V(i);
							},
							get xLabel() {
								return V(t);
							},
							get yLabel() {
								return V(a);
							},
							get domain() {
								return V(s);
							},
							get series() {
								return V(c);
							},
							pick: (e) => de(V(n)[e]),
							height: 220
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
	}), Y(L(xe, 2), 17, () => V(T), J, (e, t) => {
		let n = /* @__PURE__ */ A(() => E(V(t)));
		{
			let r = /* @__PURE__ */ A(() => `Damage in ${V(t)}: ${V(f)}`), i = /* @__PURE__ */ A(() => oe(V(w).filter((e) => e.context === V(t))));
			zc(e, {
				get title() {
					return V(r);
				},
				get table() {
					return V(i);
				},
				note: "The unedited outcome minus that under the intervention, beside its controls, which hit random others.",
				children: (e, r) => {
					{
						let r = /* @__PURE__ */ A(() => `Damage by intervention in ${V(t)}`), i = /* @__PURE__ */ A(() => `${V(f)} lost`), a = /* @__PURE__ */ A(() => b(V(w).filter((e) => e.context === V(t)), V(n), ee, { points: !0 }));
						dl(e, {
							get label() {
								return V(r);
							},
							get x() {
								return V(n);
							},
							xLabel: "",
							get yLabel() {
								return V(i);
							},
							zero: !0,
							get series() {
								return V(a);
							},
							pick: (e) => {
								let r = V(w).find((r) => r.context === V(t) && ee(r) === V(n)[e]);
								de(r.context, r.intervention, r.control);
							},
							height: 240
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
	}), k(ve);
	var Se = L(ve, 2), D = (e) => {
		var t = bl(), n = L(P(t), 2), r = P(n), i = P(r), a = P(i);
		Y(a, 21, () => ie, J, (e, t) => {
			var n = /* @__PURE__ */ A(() => _(V(t), 2));
			let r = () => V(n)[0], i = () => V(n)[1];
			var a = gl(), o = P(a), s = I(o);
			k(a), R(() => {
				X(a, "aria-sort", V(ne) === r() ? V(re) ? "descending" : "ascending" : "none"), K(s, `${i() ?? ""}${V(ne) === r() ? V(re) ? " ↓" : " ↑" : ""}`);
			}), H("click", o, () => {
				N(re, V(ne) === r() && !V(re), !0), N(ne, r(), !0);
			}), G(e, a);
		}), k(a), k(i);
		var o = L(i);
		Y(o, 21, () => V(ae), J, (e, t) => {
			var n = yl();
			Y(n, 21, () => ie, J, (e, n) => {
				var r = /* @__PURE__ */ A(() => _(V(n), 1));
				let i = () => V(r)[0];
				var a = vl();
				let o;
				var s = P(a), c = (e) => {
					var n = _l(), r = I(n, !0);
					R((e) => K(r, e), [() => $(V(t).context)]), H("click", n, () => de(V(t).context, V(t).intervention, V(t).control)), G(e, n);
				}, l = (e) => {
					var n = Mr();
					R((e) => K(n, e), [() => Q(V(t)[i()])]), G(e, n);
				}, u = (e) => {
					var n = Mr();
					R((e) => K(n, e), [() => $(String(V(t)[i()] ?? ""))]), G(e, n);
				};
				q(s, (e) => {
					i() === "context" && V(t).answers ? e(c) : typeof V(t)[i()] == "number" ? e(l, 1) : e(u, -1);
				}), k(a), R(() => o = ii(a, 1, "", null, o, { number: typeof V(t)[i()] == "number" })), G(e, a);
			}), k(n), G(e, n);
		}), k(o), k(r), k(n), k(t), G(e, t);
	};
	q(Se, (e) => {
		V(te).length && e(D);
	});
	var Ce = L(Se, 2), O = (e) => {
		var t = wl(), r = P(t), i = I(r, !0), a = L(r, 2), o = I(a);
		Y(L(a, 2), 17, () => V(le), J, (e, t) => {
			let n = () => V(t).first, r = () => V(t).of;
			var i = Cl(), a = P(i), o = P(a), s = I(o, !0), c = L(o, 3);
			Y(L(c), 17, r, J, (e, t) => {
				var n = /* @__PURE__ */ A(() => _(V(t), 2));
				let r = () => V(n)[0], i = () => V(n)[1];
				var a = xl(), o = P(a), s = I(o, !0), c = L(o);
				k(a), R((e, t) => {
					K(s, e), K(c, ` ${i()?.accuracy ? "✓" : "✕"} ${t ?? ""}`);
				}, [() => $(r()), () => $(i()?.prediction ?? "–")]), G(e, a);
			}), k(a), Y(L(a, 2), 17, r, J, (e, t) => {
				var n = /* @__PURE__ */ A(() => _(V(t), 2));
				let r = () => V(n)[0], i = () => V(n)[1];
				var a = Nr(), o = F(a), s = (e) => {
					var t = Sl(), n = F(t), a = I(n, !0), o = L(n, 2), s = I(o), c = L(o, 2), l = I(c, !0), u = L(c, 2), d = I(L(P(u)), !0);
					k(u), R((e, t, n, r, i) => {
						K(a, e), K(s, `accuracy ${t ?? ""} · log likelihood ${n ?? ""}`), K(l, r), K(d, i);
					}, [
						() => $(r()),
						() => Q(i().accuracy),
						() => Q(i().log_likelihood),
						() => Hi(i().prompt),
						() => Hi(i().prediction)
					]), G(e, t);
				};
				q(o, (e) => {
					i() && e(s);
				}), G(e, a);
			}), k(i), R((e, t) => {
				K(s, e), K(c, ` ${t ?? ""} `);
			}, [() => $(n().sample), () => Hi(n().answer)]), G(e, i);
		}), k(t), Ai(t, (e) => N(ue, e), () => V(ue)), R((e) => {
			K(i, e), K(o, `${V(le).length ?? ""} questions.`);
		}, [() => $(n.point.replaceAll(" |  | ", "").replace(/( \| )+$/, ""))]), G(e, t);
	}, we = (e) => {
		G(e, Tl());
	};
	q(Ce, (e) => {
		n.point && V(le).length ? e(O) : n.point && V(m).length && e(we, 1);
	}), G(e, fe), Ze();
}
Cr(["click"]);
// src/data/schema.ts
var Ol = [
	"first token",
	"strongest key",
	"anchors"
], kl = [
	"float index",
	"no memory",
	"across halves",
	"no movement"
], Al = [
	"padding",
	"prompt",
	"masked",
	"committed now",
	"committed before"
], jl = [
	"none",
	"mask",
	"special",
	"layout",
	"punctuation",
	"template",
	"function",
	"content",
	"number"
], Ml = {
	canvas: ["step", "position"],
	state: ["step", "position"],
	role: ["step", "position"],
	confidence: ["step", "position"],
	final: ["position"],
	committed: ["position"],
	mass: [
		"step",
		"layer",
		"group",
		"key"
	],
	visible: [
		"step",
		"layer",
		"group",
		"key"
	],
	null: [
		"step",
		"layer",
		"group",
		"key"
	],
	rows: [
		"step",
		"layer",
		"group"
	],
	standing: [
		"step",
		"layer",
		"group",
		"key"
	],
	absorbed: [
		"step",
		"layer",
		"group",
		"set"
	],
	absorbed_null: [
		"step",
		"layer",
		"group",
		"set"
	],
	entropy: [
		"step",
		"layer",
		"group"
	],
	centroid: [
		"step",
		"layer",
		"group"
	],
	centroid_null: [
		"step",
		"layer",
		"group"
	],
	commits: ["step"],
	commit_confidence: ["step"],
	float_index: [
		"layer",
		"group",
		"index"
	],
	top_key: [
		"layer",
		"head",
		"written",
		"rank"
	],
	top_weight: [
		"layer",
		"head",
		"written",
		"rank"
	],
	written: ["written"],
	lift_by_head: [
		"step",
		"layer",
		"head",
		"group",
		"key"
	],
	entropy_by_head: [
		"step",
		"layer",
		"head",
		"group"
	],
	first_by_head: [
		"step",
		"layer",
		"head",
		"group"
	],
	first_by_head_null: [
		"step",
		"layer",
		"head",
		"group"
	],
	head_value: [
		"measure",
		"layer",
		"head",
		"group"
	],
	head_null: [
		"measure",
		"layer",
		"head",
		"group"
	],
	pattern: [
		"step",
		"chosen",
		"query",
		"key"
	],
	geometry: [
		"quantity",
		"layer",
		"group",
		"key"
	],
	geometry_standing: [
		"layer",
		"group",
		"key"
	],
	geometry_means: [
		"quantity",
		"layer",
		"group",
		"kind"
	],
	advantage: [
		"layer",
		"group",
		"part"
	],
	value_norms: [
		"layer",
		"group",
		"kind"
	],
	role_share: [
		"layer",
		"group",
		"role"
	],
	role_null: [
		"layer",
		"group",
		"role"
	],
	role_enrichment: [
		"layer",
		"group",
		"role"
	],
	flow: ["layer", "region"],
	flow_null: ["layer", "region"],
	flow_fair: ["layer", "region"],
	rollout: ["layer", "region"],
	rollout_null: ["layer", "region"]
}, Nl = [
	"canvas",
	"state",
	"role",
	"confidence",
	"mass",
	"visible",
	"null",
	"rows",
	"standing",
	"absorbed",
	"absorbed_null",
	"entropy",
	"centroid"
], Pl = [
	"mass",
	"visible",
	"null",
	"standing"
], Fl = class {
	run;
	sample;
	step;
	rows;
	arrays;
	constructor(e, t, n, r, i) {
		this.run = e, this.sample = t, this.step = n, this.rows = r, this.arrays = i;
	}
	whole(e) {
		return this.rows.get(e) ?? null;
	}
	along(e, t, n) {
		let r = this.rows.get(e);
		if (!r) return null;
		let [, i, a, o = 1] = this.arrays.get(e).shape, s = ((i === 1 ? 0 : t) * a + n) * o;
		return r.subarray(s, s + o);
	}
};
async function Il(e, t, n, r, i = Nl) {
	let a = /* @__PURE__ */ new Map(), o = /* @__PURE__ */ new Map();
	return await Promise.all(i.map(async (t) => {
		let i = e.array(n, t);
		if (!i) return;
		let s = await i;
		a.set(t, s), o.set(t, await s.row(r)), r + 1 < n.steps && s.stored(r + 1);
	})), new Fl(t, n, r, o, a);
}
var Ll = class {
	lift;
	visible;
	fair;
	standing;
	approximate;
	ranked = null;
	shared = null;
	fairly = null;
	constructor(e, t, n, r, i) {
		this.lift = e, this.visible = t, this.fair = n, this.standing = r, this.approximate = i;
	}
	get ranks() {
		return this.ranked ??= Li(this.lift);
	}
	get share() {
		return this.shared ??= Ii(this.amounts(this.lift));
	}
	get fairShare() {
		return this.fairly ??= Ii(this.amounts(null));
	}
	amounts(e) {
		let t = new Float32Array(this.visible.length);
		for (let n = 0; n < t.length; n++) {
			let r = this.visible[n] * this.fair[n];
			t[n] = r > 0 ? r * (e ? e[n] : 1) : NaN;
		}
		return t;
	}
};
async function Rl(e, t, n, r, i) {
	if (r === null) return zl(t, n, i);
	let a = t.along("visible", n, i), o = t.along("null", n, i), s = e.array(t.sample, "lift_by_head");
	if (!s || !a || !o) return null;
	let c = await s, [, , l, u, d] = c.shape;
	return new Ll(await c.row(t.step, ((n * l + r) * u + i) * d, d), a, o, null, c.approximate);
}
function zl(e, t, n) {
	let r = e.along("mass", t, n), i = e.along("visible", t, n), a = e.along("null", t, n);
	return r && i && a ? new Ll(Fi(r, i, a), i, a, e.along("standing", t, n), null) : null;
}
var Bl = class {
	profiles;
	keys;
	lift;
	standing;
	approximate;
	shared = null;
	constructor(e, t) {
		this.profiles = e, this.keys = t, this.lift = this.joined((e) => e.lift), this.approximate = e[0].approximate, this.standing = e[0].standing ? new Uint8Array(e.length * t) : null, this.standing && e.forEach((e, n) => this.standing.set(e.standing, n * t));
	}
	get rows() {
		return this.profiles.length;
	}
	get share() {
		return this.shared ??= this.joined((e) => e.share);
	}
	joined(e) {
		let t = new Float32Array(this.profiles.length * this.keys);
		return this.profiles.forEach((n, r) => t.set(e(n), r * this.keys)), t;
	}
};
async function Vl(e, t, n, r) {
	let i = t.run.layers.map((e, t) => t);
	return Ul(n === null ? i.map((e) => zl(t, e, r)) : await Promise.all(i.map((i) => Rl(e, t, i, n, r))), t.sample.positions);
}
async function Hl(e, t, n, r, i, a) {
	let o = Array.from({ length: n.steps }, (e, t) => t);
	return Ul(await Promise.all(o.map(async (o) => Rl(e, await Il(e, t, n, o, Pl), r, i, a))), n.positions);
}
function Ul(e, t) {
	return e.length && e.every((e) => e !== null) ? new Bl(e, t) : null;
}
async function Wl(e, t, n, r, i, a) {
	let o = await e.values(n, "written"), s = o ? Array.from(o).indexOf(r) : -1, c = e.array(n, "top_key"), l = e.array(n, "top_weight");
	if (s < 0 || !c || !l) return null;
	let [u, d] = [await c, await l], [, f, p, m] = u.shape, [h, g] = [await u.row(i), await d.row(i)], _ = /* @__PURE__ */ new Map();
	for (let e = 0; e < f; e++) if (a === null || e === a) for (let t = 0; t < m; t++) {
		let n = (e * p + s) * m + t;
		if (h[n] < 0 || Number.isNaN(g[n])) continue;
		let r = _.get(h[n]) ?? {
			key: h[n],
			weight: 0,
			heads: 0
		};
		r.weight += g[n] / (a === null ? f : 1), r.heads++, _.set(h[n], r);
	}
	return {
		keys: [..._.values()].sort((e, t) => t.weight - e.weight).slice(0, 8),
		approximate: d.approximate
	};
}
var Gl = {
	0: "no anchor",
	1: "anchor",
	2: "not measured: too few rows see it"
}, Kl = /* @__PURE__ */ W("<rect></rect>"), ql = /* @__PURE__ */ W("<text text-anchor=\"end\"> </text>"), Jl = /* @__PURE__ */ W("<text class=\"tick\" text-anchor=\"middle\"></text>"), Yl = /* @__PURE__ */ U("<div class=\"heat\"><svg data-chart=\"\" role=\"img\"><!><!><!><text class=\"axis-label\" text-anchor=\"end\">layer × head</text></svg> <div class=\"ramp-line\"><span> </span><span class=\"ramp\" aria-hidden=\"true\"></span><span> </span><span class=\"what\"> </span></div></div>");
function Xl(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ M(400), i = /* @__PURE__ */ A(() => Math.max(4, Math.min(96, (V(r) - 34 - 4) / t.heads))), a = /* @__PURE__ */ A(() => Math.max(9, Math.min(30, 420 / t.layers.length))), o = /* @__PURE__ */ A(() => V(a) * t.layers.length), s = /* @__PURE__ */ A(() => t.layers.flatMap((e, n) => Array.from({ length: t.heads }, (e, r) => ({
		layer: n,
		head: r,
		amount: t.value(n, r)
	})))), c = /* @__PURE__ */ A(() => V(s).map((e) => e.amount).filter(Z)), l = ea(() => `${t.label} by head`, () => V(c).length ? [Math.min(0, ...V(c)), Math.max(...V(c))] : null), u = /* @__PURE__ */ A(() => l()?.[0] ?? 0), d = /* @__PURE__ */ A(() => Math.max(l()?.[1] ?? 1, V(u) + 1e-9)), f = /* @__PURE__ */ A(() => (e) => `rgb(${Vc((e - V(u)) / (V(d) - V(u))).join(",")})`);
	function p(e, r, i) {
		let a = t.value(r, i), o = t.nullOf(r, i), s = 1 + V(c).filter((e) => e > a).length;
		n.hover = {
			x: e.clientX,
			y: e.clientY,
			title: `layer ${t.layers[r]}, head ${i}`,
			lines: [
				[t.label, `${Q(a, 5)} ${t.unit}`],
				["null", Z(o) ? `${Q(o, 5)} ${t.unit}` : "none"],
				["rank", Z(a) ? `${s} of ${V(c).length}` : "–"]
			]
		};
	}
	var m = Yl(), h = P(m), g = P(h);
	Y(g, 17, () => V(s), J, (e, r) => {
		var o = Kl();
		let s;
		R((e) => {
			s = ii(o, 0, "cell", null, s, { chosen: V(r).layer === t.atLayer && V(r).head === t.atHead }), X(o, "x", 34 + V(r).head * V(i)), X(o, "y", V(r).layer * V(a)), X(o, "width", V(i) - 1), X(o, "height", V(a) - 1), X(o, "fill", e);
		}, [() => Z(V(r).amount) ? V(f)(V(r).amount) : "none"]), H("pointermove", o, (e) => p(e, V(r).layer, V(r).head)), Sr("pointerleave", o, () => n.hover = null), H("click", o, () => t.pick?.(V(r).layer, V(r).head)), G(e, o);
	});
	var _ = L(g);
	Y(_, 17, () => t.layers, J, (e, n, r) => {
		var i = Nr(), o = F(i), s = (e) => {
			var i = ql();
			let o;
			X(i, "x", 28);
			var s = I(i, !0);
			R(() => {
				o = ii(i, 0, "tick", null, o, { now: r === t.atLayer }), X(i, "y", (r + .5) * V(a) + 3.5), K(s, V(n));
			}), G(e, i);
		}, c = /* @__PURE__ */ A(() => r % Math.ceil(13 / V(a)) === 0);
		q(o, (e) => {
			V(c) && e(s);
		}), G(e, i);
	});
	var v = L(_);
	Y(v, 17, () => ({ length: t.heads }), J, (e, t, n) => {
		var r = Nr(), a = F(r), s = (e) => {
			var t = Jl();
			t.textContent = n, R(() => {
				X(t, "x", 34 + (n + .5) * V(i)), X(t, "y", V(o) + 13);
			}), G(e, t);
		}, c = /* @__PURE__ */ A(() => n % Math.ceil(18 / V(i)) === 0);
		q(a, (e) => {
			V(c) && e(s);
		}), G(e, r);
	});
	var y = L(v);
	k(h);
	var b = L(h, 2), x = P(b), S = I(x, !0), C = L(x, 2), w = I(C, !0), T = I(L(C));
	k(b), k(m), R((e, n) => {
		X(h, "aria-label", `${t.label} by layer and head`), X(h, "viewBox", `0 0 ${V(r)} ${V(o) + 28}`), X(h, "height", V(o) + 28), X(y, "x", 34 + t.heads * V(i)), X(y, "y", V(o) + 26), K(S, e), K(w, n), K(T, `${t.unit ?? ""}; bounds are the least and the most shown`);
	}, [() => Q(V(u), 2), () => Q(V(d), 3)]), Oi(m, "clientWidth", (e) => N(r, e)), G(e, m), Ze();
}
Cr(["pointermove", "click"]);
// src/parts/HeatMap.svelte
var Zl = /* @__PURE__ */ W("<image class=\"saved\" y=\"0\" preserveAspectRatio=\"none\" image-rendering=\"pixelated\"></image>"), Ql = /* @__PURE__ */ W("<text text-anchor=\"end\"> </text>"), $l = /* @__PURE__ */ W("<text class=\"tick\" text-anchor=\"middle\"> </text>"), eu = /* @__PURE__ */ W("<rect class=\"key-now\" y=\"0\"></rect>"), tu = /* @__PURE__ */ U("<span class=\"what\"><svg width=\"9\" height=\"9\" aria-hidden=\"true\"><path class=\"anchors\" d=\"M.5 4.5l4 4 4-4-4-4z\"></path></svg> anchor</span>"), nu = /* @__PURE__ */ U("<span class=\"what\">≈ rounded per head</span>"), ru = /* @__PURE__ */ U("<canvas aria-hidden=\"true\"></canvas> <svg data-chart=\"\" role=\"img\"><!><!><!><text class=\"axis-label\" text-anchor=\"end\"> </text><path class=\"anchors\"></path><rect class=\"row-now\"></rect><!></svg> <div class=\"ramp-line\"><span> </span> <span class=\"ramp\" aria-hidden=\"true\"></span> <span> </span> <span class=\"what\"> </span> <!> <!></div>", 1), iu = /* @__PURE__ */ U("<p class=\"note\">There are no values per head here.</p>"), au = /* @__PURE__ */ U("<div class=\"heat\"><!></div>");
function ou(e, t) {
	Xe(t, !0);
	let n = new Uint32Array(new Uint8Array(Array.from({ length: 256 }, (e, t) => [...Vc(t / 255), 255]).flat()).buffer), r = /* @__PURE__ */ M(void 0), i = /* @__PURE__ */ M(600), a = /* @__PURE__ */ A(() => t.matrix ? Math.max(7, Math.min(26, 300 / t.matrix.rows)) : 12), o = /* @__PURE__ */ A(() => t.matrix ? Math.max(1, Math.round(t.matrix.rows * V(a))) : 120), s = /* @__PURE__ */ A(() => Math.max(10, V(i) - 34 - 4)), c = /* @__PURE__ */ A(() => t.matrix ? V(s) / t.matrix.keys : 1), l = /* @__PURE__ */ M("");
	Cn(() => {
		if (!V(r) || !t.matrix) return;
		let e = t.kind === "lift" ? t.matrix.lift : t.matrix.share;
		V(r).width = t.matrix.keys, V(r).height = t.matrix.rows;
		let i = V(r).getContext("2d"), a = i.createImageData(t.matrix.keys, t.matrix.rows), o = new Uint32Array(a.data.buffer);
		for (let r = 0; r < e.length; r++) Number.isNaN(e[r]) || (o[r] = n[Math.round(Math.min(1, Math.max(0, Kc(t.scale, e[r]))) * 255)]);
		i.putImageData(a, 0, 0);
	});
	let u = /* @__PURE__ */ A(() => {
		if (!t.matrix?.standing || t.matrix.rows * t.matrix.keys > 2e5) return "";
		let e = "", n = Math.min(2.4, V(c) / 2.6, V(a) / 3.4);
		for (let r = 0; r < t.matrix.standing.length; r++) {
			if (t.matrix.standing[r] !== 1) continue;
			let i = 34 + (r % t.matrix.keys + .5) * V(c), o = (Math.floor(r / t.matrix.keys) + .5) * V(a);
			e += `M${(i - n).toFixed(1)} ${o.toFixed(1)}l${n.toFixed(1)} ${n.toFixed(1)} ${n.toFixed(1)} ${(-n).toFixed(1)} ${(-n).toFixed(1)} ${(-n).toFixed(1)}z`;
		}
		return e;
	}), d = /* @__PURE__ */ A(() => [...t.rowLabels.keys()].filter((e) => e % Math.ceil(14 / V(a)) === 0)), f = /* @__PURE__ */ A(() => {
		if (!t.matrix) return [];
		let e = t.matrix.keys / V(s) * 64, n = [
			1,
			2,
			5,
			10,
			20,
			50,
			100,
			200,
			500,
			1e3
		].find((t) => t >= e) ?? 2e3;
		return Array.from({ length: Math.ceil(t.matrix.keys / n) }, (e, t) => t * n);
	});
	function p(e) {
		if (!t.matrix) return null;
		let n = e.currentTarget.getBoundingClientRect(), r = Math.floor((e.clientX - n.left) / n.width * V(i) - 34) / V(c), s = Math.floor((e.clientY - n.top) / n.height * (V(o) + 28) / V(a));
		return r >= 0 && r < t.matrix.keys && s >= 0 && s < t.matrix.rows ? [s, Math.floor(r)] : null;
	}
	function m() {
		N(l, V(r)?.toDataURL("image/png") ?? "", !0);
	}
	Cn(() => {
		t.matrix, t.kind, t.scale;
		let e = setTimeout(m, 250);
		return () => clearTimeout(e);
	});
	var h = au(), g = P(h), _ = (e) => {
		var n = ru(), m = F(n);
		let h;
		Ai(m, (e) => N(r, e), () => V(r));
		var g = L(m, 2), _ = P(g), v = (e) => {
			var t = Zl();
			X(t, "x", 34), R(() => {
				X(t, "href", V(l)), X(t, "width", V(s)), X(t, "height", V(o));
			}), G(e, t);
		};
		q(_, (e) => {
			V(l) && e(v);
		});
		var y = L(_);
		Y(y, 17, () => V(d), J, (e, n) => {
			var r = Ql();
			let i;
			X(r, "x", 28);
			var o = I(r, !0);
			R(() => {
				i = ii(r, 0, "tick", null, i, { now: V(n) === t.at }), X(r, "y", (V(n) + .5) * V(a) + 3.5), K(o, t.rowLabels[V(n)]);
			}), G(e, r);
		});
		var b = L(y);
		Y(b, 17, () => V(f), J, (e, t) => {
			var n = $l(), r = I(n, !0);
			R(() => {
				X(n, "x", 34 + (V(t) + .5) * V(c)), X(n, "y", V(o) + 14), K(r, V(t));
			}), G(e, n);
		});
		var x = L(b), S = I(x), C = L(x), w = L(C);
		X(w, "x", 34);
		var T = L(w), E = (e) => {
			var n = eu();
			R((e) => {
				X(n, "x", 34 + t.keyAt * V(c)), X(n, "width", e), X(n, "height", V(o));
			}, [() => Math.max(2, V(c))]), G(e, n);
		};
		q(T, (e) => {
			t.keyAt !== null && e(E);
		}), k(g);
		var ee = L(g, 2), te = P(ee), ne = I(te, !0), re = L(te, 4), ie = I(re), ae = L(re, 2), oe = I(ae), se = L(ae, 2), ce = (e) => {
			G(e, tu());
		};
		q(se, (e) => {
			t.matrix.standing && e(ce);
		});
		var le = L(se, 2), ue = (e) => {
			G(e, nu());
		};
		q(le, (e) => {
			t.matrix.approximate && e(ue);
		}), k(ee), R((e, n) => {
			h = oi(m, "", h, {
				left: "34px",
				width: `${V(s)}px`,
				height: `${V(o)}px`
			}), X(g, "aria-label", t.label), X(g, "viewBox", `0 0 ${V(i)} ${V(o) + 28}`), X(g, "height", V(o) + 28), X(x, "x", V(i) - 4), X(x, "y", V(o) + 26), K(S, `${t.rowName ?? ""} × key position`), X(C, "d", V(u)), X(w, "y", t.at * V(a)), X(w, "width", V(s)), X(w, "height", V(a)), K(ne, e), K(ie, `≥ ${n ?? ""}`), K(oe, `${t.kind === "lift" ? "lift: 1 is a fair share" : "share of the attention"}${t.scale.log ? ", log scale" : ""}`);
		}, [() => t.scale.log ? `≤ ${Q(t.scale.low, 2)}` : Q(t.scale.low, 2), () => Q(t.scale.high, 2)]), H("pointermove", g, (e) => {
			let n = p(e);
			n ? t.tell(e, ...n) : t.leave();
		}), Sr("pointerleave", g, function(...e) {
			t.leave?.apply(this, e);
		}), H("click", g, (e) => {
			let n = p(e);
			n && t.pick(...n);
		}), G(e, n);
	}, v = (e) => {
		G(e, iu());
	};
	q(g, (e) => {
		t.matrix ? e(_) : e(v, -1);
	}), k(h), Oi(h, "clientWidth", (e) => N(i, e)), G(e, h), Ze();
}
Cr(["pointermove", "click"]);
// src/parts/Pattern.svelte
var su = /* @__PURE__ */ W("<image image-rendering=\"pixelated\"></image>"), cu = /* @__PURE__ */ U("<div class=\"pattern\"><svg data-chart=\"\" role=\"img\" aria-label=\"Full attention pattern\"><!></svg> <div class=\"ramp-line\"><span> </span><span class=\"ramp\" aria-hidden=\"true\"></span><span> </span><span class=\"what\">weight of a row (down) on a key (across), log scale</span></div></div>");
function lu(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ M(""), i = /* @__PURE__ */ M(300), a = {
		low: .001,
		high: 1,
		log: !0
	};
	Cn(() => {
		let e = document.createElement("canvas");
		e.width = e.height = t.size;
		let n = e.getContext("2d"), i = n.createImageData(t.size, t.size);
		for (let e = 0; e < t.values.length; e++) Number.isNaN(t.values[e]) || i.data.set([...Vc(Kc(a, t.values[e])), 255], e * 4);
		n.putImageData(i, 0, 0), N(r, e.toDataURL("image/png"), !0);
	});
	let o = /* @__PURE__ */ A(() => Math.min(V(i), 420));
	function s(e) {
		let r = e.currentTarget.getBoundingClientRect(), [i, a] = [e.clientY - r.top, e.clientX - r.left].map((e) => Math.min(t.size - 1, Math.max(0, Math.floor(e / r.width * t.size))));
		n.hover = {
			x: e.clientX,
			y: e.clientY,
			title: `row ${i} on key ${a}`,
			lines: [["weight", Q(t.values[i * t.size + a], 5)]]
		};
	}
	var c = cu(), l = P(c), u = P(l), d = (e) => {
		var n = su();
		R(() => {
			X(n, "href", V(r)), X(n, "width", t.size), X(n, "height", t.size);
		}), G(e, n);
	};
	q(u, (e) => {
		V(r) && e(d);
	}), k(l);
	var f = L(l, 2), p = P(f), m = I(p), h = I(L(p, 2), !0);
	Ee(), k(f), k(c), R(() => {
		X(l, "width", V(o)), X(l, "height", V(o)), X(l, "viewBox", `0 0 ${t.size} ${t.size}`), K(m, `≤ ${a.low ?? ""}`), K(h, a.high);
	}), H("pointermove", l, s), Sr("pointerleave", l, () => n.hover = null), Oi(c, "clientWidth", (e) => N(i, e)), G(e, c), Ze();
}
Cr(["pointermove"]);
// src/parts/Tokens.svelte
var uu = /* @__PURE__ */ U("<br/>"), du = /* @__PURE__ */ U("<button><bdi> </bdi></button><!>", 1), fu = /* @__PURE__ */ W("<path></path>"), pu = /* @__PURE__ */ W("<svg class=\"arcs\" aria-hidden=\"true\"></svg>"), mu = /* @__PURE__ */ U("<div class=\"tokens\" role=\"group\" dir=\"ltr\"><!> <!></div>");
function hu(e, t) {
	Xe(t, !0);
	let n = /* @__PURE__ */ M(void 0), r = /* @__PURE__ */ M(0), i = /* @__PURE__ */ M(en([])), a = /* @__PURE__ */ M(0), o = /* @__PURE__ */ A(() => {
		let e = /* @__PURE__ */ new Map();
		return (n) => {
			let r = e.get(n);
			return r || e.set(n, r = {
				text: Vi(t.vocabulary[n] ?? "") || "∅",
				breaks: (t.vocabulary[n] ?? "").includes("\n")
			}), r;
		};
	}), s = [
		"unwritten",
		"prompt",
		"masked",
		"now",
		"before"
	], c = [], l = /* @__PURE__ */ A(() => {
		let e = t.frame.whole("state"), n = t.frame.whole("canvas"), r = t.profile && (t.kind === "lift" ? t.profile.lift : t.profile.share), i = Array.from({ length: t.frame.sample.positions }, (i, a) => {
			let l = s[e[a]] ?? "unwritten", u = l === "now" || l === "masked" || l === "unwritten" ? t.final[a] : n[a], { text: d, breaks: f } = V(o)(u), p = r ? r[a] : NaN, m = Number.isNaN(p) ? null : Wc(Kc(t.scale, p)), h = t.profile?.standing?.[a] === 1, g = c[a];
			return g && g.kind === l && g.text === d && g.anchor === h && g.ground === m?.ground ? g : {
				position: a,
				kind: l,
				text: d,
				breaks: f && l !== "masked" && l !== "unwritten",
				anchor: h,
				ground: m?.ground,
				ink: m?.ink
			};
		});
		return c = i, i;
	});
	Cn(() => {
		t.frame, V(r), t.looks, t.row === null ? V(i).length && N(i, [], !0) : fr().then(u);
	});
	function u() {
		if (!V(n) || t.row === null) return void N(i, [], !0);
		let e = V(n).getBoundingClientRect(), r = (t) => {
			let r = V(n).querySelector(`[data-position="${t}"]`)?.getBoundingClientRect();
			return r ? [
				r.left + r.width / 2 - e.left,
				r.top - e.top,
				r.bottom - e.top
			] : null;
		}, o = r(t.row);
		N(a, e.height, !0), N(i, o ? t.looks.flatMap(({ key: e, weight: n }) => {
			let i = r(e);
			if (!i || e === t.row) return [];
			let a = Math.min(120, 14 + Math.abs(o[0] - i[0]) / 5 + Math.abs(o[1] - i[1]) / 6), s = Math.max(2, Math.min(o[1], i[1]) - a);
			return [{
				path: `M${o[0]} ${o[1]}C${o[0]} ${s} ${i[0]} ${s} ${i[0]} ${i[1]}`,
				weight: n
			}];
		}) : [], !0);
	}
	var d = mu(), f = P(d);
	Y(f, 17, () => V(l), (e) => e.position, (e, n) => {
		var r = du(), i = F(r);
		let a, o;
		var s = I(P(i), !0);
		k(i);
		var c = L(i), l = (e) => {
			G(e, uu());
		};
		q(c, (e) => {
			V(n).breaks && e(l);
		}), R((e) => {
			a = ii(i, 1, `token ${V(n).kind ?? ""}`, null, a, {
				anchor: V(n).anchor,
				pinned: V(n).position === t.keyAt,
				row: V(n).position === t.row,
				found: e
			}), X(i, "data-position", V(n).position), X(i, "tabindex", V(n).position === (t.keyAt ?? 0) ? 0 : -1), X(i, "aria-label", V(n).kind === "masked" ? `mask at ${V(n).position}` : V(n).kind === "unwritten" ? `nothing yet at ${V(n).position}` : `${V(n).text} at ${V(n).position}`), o = oi(i, "", o, {
				"background-color": V(n).ground,
				color: V(n).kind === "masked" || V(n).kind === "unwritten" ? "transparent" : V(n).ink
			}), K(s, V(n).text);
		}, [() => t.found.has(V(n).position)]), Sr("pointerenter", i, (e) => t.tell(e, V(n).position)), Sr("pointerleave", i, function(...e) {
			t.leave?.apply(this, e);
		}), Sr("focus", i, (e) => t.tell(e, V(n).position)), Sr("blur", i, function(...e) {
			t.leave?.apply(this, e);
		}), H("click", i, () => t.pick(V(n).position)), G(e, r);
	});
	var p = L(f, 2), m = (e) => {
		var t = pu();
		Y(t, 21, () => V(i), J, (e, t) => {
			var n = fu();
			R(() => {
				X(n, "d", V(t).path), X(n, "stroke-width", 1 + 7 * V(t).weight);
			}), G(e, n);
		}), k(t), R(() => {
			X(t, "width", V(r)), X(t, "height", V(a));
		}), G(e, t);
	};
	q(p, (e) => {
		V(i).length && e(m);
	}), k(d), Ai(d, (e) => N(n, e), () => V(n)), R(() => {
		X(d, "aria-label", t.label), d.dir = d.dir;
	}), Oi(d, "clientWidth", (e) => N(r, e)), G(e, d), Ze();
}
Cr(["click"]);
// src/views/Heads.svelte
var gu = /* @__PURE__ */ U("<option> </option>"), _u = /* @__PURE__ */ U("<label class=\"field\"><span class=\"hidden\">Measure</span> <select aria-label=\"Measure\"></select></label>"), vu = /* @__PURE__ */ U("<p class=\"note\"> </p>"), yu = /* @__PURE__ */ U("<!> <!>", 1), bu = /* @__PURE__ */ U("<section class=\"card text\"><!></section>"), xu = /* @__PURE__ */ U("<div class=\"grid\"><!> <!></div> <!>", 1), Su = /* @__PURE__ */ U("<div class=\"heads\"><div class=\"grid\"><!> <!></div> <!></div>");
function Cu(e, t) {
	Xe(t, !0), $i(() => t.shown);
	let n = Zi(), r = n.page, i = /* @__PURE__ */ A(() => r.document.runs[t.shown]), a = /* @__PURE__ */ A(() => n.sampleOf(t.shown)), o = /* @__PURE__ */ A(() => n.groupIn(t.shown)), s = /* @__PURE__ */ A(() => n.layerIn(t.shown)), c = /* @__PURE__ */ A(() => n.headIn(t.shown)), l = /* @__PURE__ */ A(() => n.stepIn(t.shown)), u = /* @__PURE__ */ A(() => t.shown === n.run), d = /* @__PURE__ */ A(() => Math.max(0, V(a).measures.indexOf(n.measure))), f = new kc(() => r.values(V(a), "head_value")), p = new kc(() => r.values(V(a), "head_null")), m = new kc(() => r.values(V(a), "entropy_by_head")), h = new kc(() => r.values(V(a), "first_by_head")), g = new kc(() => r.values(V(a), "first_by_head_null")), _ = new kc(() => r.vocabulary(V(a))), v = new kc(() => r.values(V(a), "final")), y = /* @__PURE__ */ A(() => Gc("lift", !0)), b = new kc(async () => V(c) === null ? null : Hl(r, V(i), V(a), V(s), V(c), V(o))), x = new kc(async () => {
		let [e, t, n, u] = [
			V(s),
			V(c),
			V(o),
			V(l)
		];
		if (t === null) return null;
		let d = await Il(r, V(i), V(a), u);
		return {
			frame: d,
			profile: await Rl(r, d, e, t, n)
		};
	}), S = /* @__PURE__ */ A(() => V(i).chosen.findIndex(([e, t]) => e === V(i).layers[V(s)] && t === V(c))), C = new kc(async () => {
		let [e, t, n] = [
			V(l),
			V(S),
			V(a).positions
		], i = r.array(V(a), "pattern");
		return i && t >= 0 ? (await i).row(e, t * n * n, n * n) : null;
	}), w = (e, t, n = V(d)) => ((n * V(i).layers.length + e) * V(i).heads + t) * V(i).groups.length + V(o), T = (e) => Array.from({ length: V(a).steps }, (t, n) => V(c) === null ? null : e?.[((n * V(i).layers.length + V(s)) * V(i).heads + V(c)) * V(i).groups.length + V(o)] ?? null), E = /* @__PURE__ */ A(() => Array.from({ length: V(a).steps }, (e, t) => t)), ee = () => ({
		head: [
			"layer",
			"head",
			...V(a).measures.flatMap((e, t) => [`${e} (${V(a).measure_units[t]})`, `${e}, null`])
		],
		rows: V(i).layers.flatMap((e, t) => Array.from({ length: V(i).heads }, (n, r) => [
			e,
			r,
			...V(a).measures.flatMap((e, n) => [f.value?.[w(t, r, n)] ?? null, p.value?.[w(t, r, n)] ?? null])
		]))
	}), te = () => ({
		head: [
			"step",
			"row entropy",
			"share of the first token",
			"its null"
		],
		rows: V(E).map((e) => [
			e,
			T(m.value)[e],
			T(h.value)[e],
			T(g.value)[e]
		])
	}), ne = () => ({
		head: [
			"step",
			"position",
			"lift"
		],
		rows: b.value ? Array.from(b.value.lift, (e, t) => [
			Math.floor(t / b.value.keys),
			t % b.value.keys,
			e
		]) : []
	}), re = (e) => $(_.value?.[v.value?.[e] ?? -1] ?? ""), ie = (e, t) => {
		let r = x.value?.profile, i = e.currentTarget.getBoundingClientRect(), a = r?.approximate ? "≈ " : "";
		r && (n.hover = {
			x: i.left,
			y: i.bottom,
			title: re(t),
			lines: [
				["position", String(t)],
				["lift", `${a}${Q(r.lift[t], 4)} · null 1`],
				["rank", `${a}${r.ranks[t] || "–"}`]
			]
		});
	}, ae = (e, t, r) => {
		let i = b.value.lift[t * b.value.keys + r];
		n.hover = {
			x: e.clientX,
			y: e.clientY,
			title: re(r),
			lines: [
				["step", String(t)],
				["position", String(r)],
				["lift", `${b.value.approximate ? "≈ " : ""}${Q(i, 4)} · null 1`]
			]
		};
	};
	var oe = Su(), se = P(oe), ce = P(se), le = (e) => {
		{
			let t = (e) => {
				var t = _u(), r = L(P(t), 2);
				Y(r, 21, () => V(a).measures, J, (e, t) => {
					var n = gu(), r = I(n, !0), i = {};
					R(() => {
						K(r, V(t)), i !== (i = V(t)) && (n.value = (n.__value = i) ?? "");
					}), G(e, n);
				}), k(r);
				var i;
				ui(r), k(t), R(() => {
					i !== (i = V(a).measures[V(d)]) && (r.value = (r.__value = i) ?? "", li(r, i));
				}), H("change", r, (e) => n.measure = e.currentTarget.value), G(e, t);
			}, r = /* @__PURE__ */ A(() => `${V(a).measures[V(d)]}, ${V(i).groups[V(o)]} rows`);
			zc(e, {
				get title() {
					return V(r);
				},
				table: ee,
				note: "Means over the steps of this text. Choose a head to see what it does.",
				tools: t,
				children: (e, t) => {
					var r = Nr(), o = F(r), l = (e) => {
						{
							let t = /* @__PURE__ */ A(() => V(u) ? (e, t) => {
								n.layer = e, n.head = t;
							} : void 0);
							Xl(e, {
								get label() {
									return V(a).measures[V(d)];
								},
								get unit() {
									return V(a).measure_units[V(d)];
								},
								get layers() {
									return V(i).layers;
								},
								get heads() {
									return V(i).heads;
								},
								value: (e, t) => f.value[w(e, t)],
								nullOf: (e, t) => p.value?.[w(e, t)] ?? NaN,
								get atLayer() {
									return V(s);
								},
								get atHead() {
									return V(c);
								},
								get pick() {
									return V(t);
								}
							});
						}
					};
					q(o, (e) => {
						f.value && e(l);
					}), G(e, r);
				},
				$$slots: {
					tools: !0,
					default: !0
				}
			});
		}
	}, ue = (e) => {
		var t = vu(), n = I(t, !0);
		R(() => K(n, V(a).skipped.heads ?? "This trace holds nothing per head.")), G(e, t);
	};
	q(ce, (e) => {
		V(a).measures.length ? e(le) : e(ue, -1);
	});
	var de = L(ce, 2), fe = (e) => {
		{
			let t = /* @__PURE__ */ A(() => `Layer ${V(i).layers[V(s)]}, head ${V(c)}, over the steps`);
			zc(e, {
				get title() {
					return V(t);
				},
				table: te,
				children: (e, t) => {
					var r = yu(), i = F(r);
					{
						let e = /* @__PURE__ */ A(() => V(u) ? (e) => n.goTo(e) : void 0), t = /* @__PURE__ */ A(() => [{
							name: "row entropy",
							colour: 0,
							values: T(m.value)
						}]);
						dl(i, {
							label: "Row entropy by step",
							get x() {
								return V(E);
							},
							xLabel: "step",
							yLabel: "row entropy, share of its maximum",
							domain: [0, 1],
							get at() {
								return V(l);
							},
							get pick() {
								return V(e);
							},
							get series() {
								return V(t);
							},
							height: 150
						});
					}
					var a = L(i, 2);
					{
						let e = /* @__PURE__ */ A(() => V(u) ? (e) => n.goTo(e) : void 0), t = /* @__PURE__ */ A(() => [{
							name: "first token",
							colour: 1,
							values: T(h.value),
							nulls: T(g.value)
						}]);
						dl(a, {
							label: "Share of the first token by step",
							get x() {
								return V(E);
							},
							xLabel: "step",
							yLabel: "% on the first token",
							unit: "%",
							zero: !0,
							get at() {
								return V(l);
							},
							get pick() {
								return V(e);
							},
							get series() {
								return V(t);
							},
							height: 150
						});
					}
					G(e, r);
				},
				$$slots: { default: !0 }
			});
		}
	};
	q(de, (e) => {
		V(c) !== null && e(fe);
	}), k(se);
	var pe = L(se, 2), me = (e) => {
		var t = xu(), r = F(t), o = P(r);
		{
			let e = /* @__PURE__ */ A(() => `Steps × keys, layer ${V(i).layers[V(s)]}, head ${V(c)}`);
			zc(o, {
				get title() {
					return V(e);
				},
				table: ne,
				children: (e, t) => {
					var r = Nr(), i = F(r), o = (e) => {
						{
							let t = /* @__PURE__ */ A(() => V(u) ? n.key : null);
							ou(e, {
								label: "Lift by step and key",
								get matrix() {
									return b.value;
								},
								kind: "lift",
								get scale() {
									return V(y);
								},
								get rowLabels() {
									return V(E);
								},
								rowName: "step",
								get at() {
									return V(l);
								},
								get keyAt() {
									return V(t);
								},
								tell: ae,
								leave: () => n.hover = null,
								pick: (e, t) => {
									V(u) && (n.goTo(e), n.key = t);
								}
							});
						}
					}, s = (e) => {
						var t = vu(), n = I(t, !0);
						R(() => K(n, V(a).skipped["values per head"] ?? "Reading …")), G(e, t);
					};
					q(i, (e) => {
						b.value ? e(o) : e(s, -1);
					}), G(e, r);
				},
				$$slots: { default: !0 }
			});
		}
		var d = L(o, 2), f = (e) => {
			{
				let t = /* @__PURE__ */ A(() => `Full pattern at step ${V(l)}`);
				zc(e, {
					get title() {
						return V(t);
					},
					table: () => ({
						head: [
							"query",
							"key",
							"weight"
						],
						rows: Array.from(C.value, (e, t) => [
							Math.floor(t / V(a).positions),
							t % V(a).positions,
							e
						])
					}),
					children: (e, t) => {
						lu(e, {
							get values() {
								return C.value;
							},
							get size() {
								return V(a).positions;
							}
						});
					},
					$$slots: { default: !0 }
				});
			}
		};
		q(d, (e) => {
			C.value && e(f);
		}), k(r);
		var p = L(r, 2), m = (e) => {
			var t = bu(), r = P(t);
			{
				let e = /* @__PURE__ */ A(() => V(u) ? n.key : null), t = /* @__PURE__ */ A(() => `Keys of head ${V(c)} on the text`);
				hu(r, {
					get frame() {
						return x.value.frame;
					},
					get vocabulary() {
						return _.value;
					},
					get final() {
						return v.value;
					},
					get profile() {
						return x.value.profile;
					},
					kind: "lift",
					get scale() {
						return V(y);
					},
					get keyAt() {
						return V(e);
					},
					row: null,
					looks: [],
					found: /* @__PURE__ */ new Set(),
					get label() {
						return V(t);
					},
					tell: ie,
					leave: () => n.hover = null,
					pick: (e) => V(u) && (n.key = Z(n.key) && n.key === e ? null : e)
				});
			}
			k(t), G(e, t);
		};
		q(p, (e) => {
			x.value && _.value && v.value && e(m);
		}), G(e, t);
	};
	q(pe, (e) => {
		V(c) !== null && e(me);
	}), k(oe), G(e, oe), Ze();
}
Cr(["change"]);
// node_modules/zarrita/dist/src/errors.js
var wu = class extends Error {}, Tu = class extends wu {
	_tag = "NotFoundError";
	name = "NotFoundError";
	path;
	found;
	constructor(e, t = {}) {
		super(`Not found: ${e}`, { cause: t.cause }), this.path = t.path, this.found = t.found;
	}
}, Eu = class extends wu {
	_tag = "InvalidMetadataError";
	name = "InvalidMetadataError";
	path;
	constructor(e, t = {}) {
		super(e, { cause: t.cause }), this.path = t.path;
	}
}, Du = class extends wu {
	_tag = "UnknownCodecError";
	name = "UnknownCodecError";
	codec;
	constructor(e) {
		super(`Unknown codec: ${e}`), this.codec = e;
	}
}, Ou = class extends wu {
	_tag = "CodecPipelineError";
	name = "CodecPipelineError";
	direction;
	codec;
	chunkPath;
	constructor(e) {
		let t = [
			`Failed to ${e.direction} chunk`,
			e.codec && `via codec "${e.codec}"`,
			e.chunkPath && `at ${e.chunkPath}`
		].filter(Boolean);
		super(t.join(" "), { cause: e.cause }), this.direction = e.direction, this.codec = e.codec, this.chunkPath = e.chunkPath;
	}
}, ku = class extends wu {
	_tag = "UnsupportedError";
	name = "UnsupportedError";
	feature;
	constructor(e) {
		super(`Unsupported: ${e}`), this.feature = e;
	}
};
// node_modules/zarrita/dist/src/codecs/_shared.js
function Au(e) {
	return () => {
		throw new ku(`${e} encode`);
	};
}
// node_modules/zarrita/dist/src/codecs/bitround.js
var ju = class e {
	kind = "array_to_array";
	constructor(e, t) {
		if (e.keepbits < 0) throw new Eu("keepbits must be zero or positive");
	}
	static fromConfig(t, n) {
		return new e(t, n);
	}
	encode = Au("bitround");
	decode(e) {
		return e;
	}
};
// node_modules/zarrita/dist/src/typedarray.js
function Mu(e) {
	return e instanceof ArrayBuffer || e instanceof SharedArrayBuffer;
}
var Nu = class {
	#e;
	constructor(e, t, n) {
		this.#e = typeof e == "number" ? new Uint8Array(e) : Mu(e) ? new Uint8Array(e, t, n) : new Uint8Array(Array.from(e, (e) => +!!e));
	}
	get BYTES_PER_ELEMENT() {
		return 1;
	}
	get byteOffset() {
		return this.#e.byteOffset;
	}
	get byteLength() {
		return this.#e.byteLength;
	}
	get buffer() {
		return this.#e.buffer;
	}
	get length() {
		return this.#e.length;
	}
	get(e) {
		let t = this.#e[e];
		return typeof t == "number" ? t !== 0 : t;
	}
	set(e, t) {
		this.#e[e] = +!!t;
	}
	fill(e) {
		this.#e.fill(+!!e);
	}
	*[Symbol.iterator]() {
		for (let e = 0; e < this.length; e++) yield this.get(e);
	}
}, Pu = class {
	_data;
	chars;
	#e;
	constructor(e, t, n, r) {
		if (this.chars = e, this.#e = new TextEncoder(), typeof t == "number") this._data = new Uint8Array(t * e);
		else if (Mu(t)) r && (r *= e), this._data = new Uint8Array(t, n, r);
		else {
			let n = Array.from(t);
			this._data = new Uint8Array(n.length * e);
			for (let e = 0; e < n.length; e++) this.set(e, n[e]);
		}
	}
	get BYTES_PER_ELEMENT() {
		return this.chars;
	}
	get byteOffset() {
		return this._data.byteOffset;
	}
	get byteLength() {
		return this._data.byteLength;
	}
	get buffer() {
		return this._data.buffer;
	}
	get length() {
		return this.byteLength / this.BYTES_PER_ELEMENT;
	}
	get(e) {
		let t = new Uint8Array(this.buffer, this.byteOffset + this.chars * e, this.chars);
		return new TextDecoder().decode(t).replace(/\x00/g, "");
	}
	set(e, t) {
		let n = new Uint8Array(this.buffer, this.byteOffset + this.chars * e, this.chars);
		n.fill(0), n.set(this.#e.encode(t));
	}
	fill(e) {
		let t = this.#e.encode(e);
		for (let e = 0; e < this.length; e++) this._data.set(t, e * this.chars);
	}
	*[Symbol.iterator]() {
		for (let e = 0; e < this.length; e++) yield this.get(e);
	}
}, Fu = class e {
	#e;
	chars;
	constructor(t, n, r, i) {
		if (this.chars = t, typeof n == "number") this.#e = new Int32Array(n * t);
		else if (Mu(n)) i && (i *= t), this.#e = new Int32Array(n, r, i);
		else {
			let r = n, i = new e(t, 1);
			this.#e = new Int32Array((function* () {
				for (let e of r) i.set(0, e), yield* i.#e;
			})());
		}
	}
	get BYTES_PER_ELEMENT() {
		return this.#e.BYTES_PER_ELEMENT * this.chars;
	}
	get byteLength() {
		return this.#e.byteLength;
	}
	get byteOffset() {
		return this.#e.byteOffset;
	}
	get buffer() {
		return this.#e.buffer;
	}
	get length() {
		return this.#e.length / this.chars;
	}
	get(e) {
		let t = this.chars * e, n = "";
		for (let e = 0; e < this.chars; e++) n += String.fromCodePoint(this.#e[t + e]);
		return n.replace(/\u0000/g, "");
	}
	set(e, t) {
		let n = this.chars * e, r = this.#e.subarray(n, n + this.chars);
		r.fill(0);
		for (let e = 0; e < this.chars; e++) r[e] = t.codePointAt(e) ?? 0;
	}
	fill(e) {
		this.set(0, e);
		let t = this.#e.subarray(0, this.chars);
		for (let e = 1; e < this.length; e++) this.#e.set(t, e * this.chars);
	}
	*[Symbol.iterator]() {
		for (let e = 0; e < this.length; e++) yield this.get(e);
	}
};
// node_modules/zarrita/dist/src/util.js
function Iu() {
	if (typeof SharedArrayBuffer > "u") throw Error("SharedArrayBuffer is not available. In browsers, this requires Cross-Origin-Opener-Policy and Cross-Origin-Embedder-Policy headers to be set.");
}
function Lu(e, t) {
	return t ? new SharedArrayBuffer(e) : new ArrayBuffer(e);
}
function Ru(e) {
	let t = new TextDecoder().decode(e);
	try {
		return JSON.parse(t);
	} catch (e) {
		throw new Eu("Failed to decode JSON", { cause: e });
	}
}
function zu(e, t) {
	let n = t / 2, r = t - 1, i = 0;
	for (let a = 0; a < e.length; a += t) for (let t = 0; t < n; t += 1) i = e[a + t], e[a + t] = e[a + r - t], e[a + r - t] = i;
}
function Bu(e) {
	if (e === "v2:object") return globalThis.Array;
	let t = e.match(/v2:([US])(\d+)/);
	if (t) {
		let [, e, n] = t;
		return (e === "U" ? Fu : Pu).bind(null, Number(n));
	}
	if (e === "string") return globalThis.Array;
	let n = {
		int8: Int8Array,
		int16: Int16Array,
		int32: Int32Array,
		int64: globalThis.BigInt64Array,
		uint8: Uint8Array,
		uint16: Uint16Array,
		uint32: Uint32Array,
		uint64: globalThis.BigUint64Array,
		float16: globalThis.Float16Array,
		float32: Float32Array,
		float64: Float64Array,
		bool: Nu
	}[e];
	if (!n) throw new Eu(`Unknown or unsupported dataType: ${e}`);
	return n;
}
function Vu(e, t) {
	let n = e.length;
	typeof t == "string" && (t = t === "C" ? Array.from({ length: n }, (e, t) => t) : Array.from({ length: n }, (e, t) => n - 1 - t)), Zu(n === t.length, "Order length must match the number of dimensions.");
	let r = 1, i = Array(n);
	for (let n = t.length - 1; n >= 0; n--) i[t[n]] = r, r *= e[t[n]];
	return i;
}
function Hu({ name: e, configuration: t }) {
	if (e === "default") {
		let e = t?.separator ?? "/";
		return (t) => ["c", ...t].join(e);
	}
	if (e === "v2") {
		let e = t?.separator ?? ".";
		return (t) => t.join(e) || "0";
	}
	throw new Eu(`Unknown chunk key encoding: ${e}`);
}
function Uu(e) {
	if (e === "|O") return { dataType: "v2:object" };
	let t = e.match(/^([<|>])(.*)$/);
	if (!t) throw new Eu(`Invalid dtype: ${e}`);
	let [, n, r] = t, i = {
		b1: "bool",
		i1: "int8",
		u1: "uint8",
		i2: "int16",
		u2: "uint16",
		i4: "int32",
		u4: "uint32",
		i8: "int64",
		u8: "uint64",
		f2: "float16",
		f4: "float32",
		f8: "float64"
	}[r] ?? (r.startsWith("S") || r.startsWith("U") ? `v2:${r}` : void 0);
	if (!i) throw new Eu(`Unsupported or unknown dtype: ${e}`);
	return n === "|" ? { dataType: i } : {
		dataType: i,
		endian: n === "<" ? "little" : "big"
	};
}
function Wu(e) {
	return (e.id === "fixedscaleoffset" || e.id === "numcodecs.fixedscaleoffset") && typeof e.scale == "number" && typeof e.offset == "number" && (e.astype === void 0 || typeof e.astype == "string") && (e.dtype === void 0 || typeof e.dtype == "string");
}
function Gu(e, t = {}) {
	let n = [], r = Uu(e.dtype);
	e.order === "F" && n.push({
		name: "transpose",
		configuration: { order: "F" }
	});
	for (let t of e.filters ?? []) {
		if (t.id === "fixedscaleoffset" || t.id === "numcodecs.fixedscaleoffset") {
			if (!Wu(t)) throw new Eu(`Invalid fixedscaleoffset filter: ${JSON.stringify(t)}`);
			n.push({
				name: "scale_offset",
				configuration: {
					scale: t.scale,
					offset: t.offset
				}
			});
			let r = t.astype ?? t.dtype;
			if (r !== void 0 && r !== e.dtype) {
				let e = Uu(r).dataType;
				if (!qu(e, "number") && !qu(e, "bigint")) throw new Eu(`fixedscaleoffset astype must be a numeric data type, got ${r}`);
				n.push({
					name: "cast_value",
					configuration: {
						data_type: e,
						rounding: "nearest-even",
						out_of_range: "wrap"
					}
				});
			}
			continue;
		}
		let { id: r, ...i } = t;
		n.push({
			name: `numcodecs.${r}`,
			configuration: i
		});
	}
	if ("endian" in r && r.endian === "big" && n.push({
		name: "bytes",
		configuration: { endian: "big" }
	}), e.compressor) {
		let { id: t, ...r } = e.compressor;
		n.push({
			name: `numcodecs.${t}`,
			configuration: r
		});
	}
	let i;
	return globalThis.Array.isArray(t._ARRAY_DIMENSIONS) && (i = t._ARRAY_DIMENSIONS), {
		zarr_format: 3,
		node_type: "array",
		shape: e.shape,
		data_type: r.dataType,
		chunk_grid: {
			name: "regular",
			configuration: { chunk_shape: e.chunks }
		},
		chunk_key_encoding: {
			name: "v2",
			configuration: { separator: e.dimension_separator ?? "." }
		},
		codecs: n,
		fill_value: e.fill_value,
		dimension_names: i,
		attributes: t
	};
}
function Ku(e, t = {}) {
	return {
		zarr_format: 3,
		node_type: "group",
		attributes: t
	};
}
function qu(e, t) {
	if (t !== "number" && t !== "bigint" && t !== "boolean" && t !== "object" && t !== "string") return e === t;
	let n = e === "bool";
	if (t === "boolean") return n;
	let r = e.startsWith("v2:U") || e.startsWith("v2:S") || e === "string";
	if (t === "string") return r;
	let i = e === "int64" || e === "uint64";
	if (t === "bigint") return i;
	let a = e === "v2:object";
	return t === "object" ? a : !r && !i && !n && !a;
}
function Ju(e) {
	return e?.name === "sharding_indexed";
}
function Yu(e) {
	if ((e.data_type === "uint64" || e.data_type === "int64") && e.fill_value != null) return BigInt(e.fill_value);
	let t = e.data_type === "float16" || e.data_type === "float32" || e.data_type === "float64";
	if (typeof e.fill_value == "string" && t) {
		let t = {
			NaN: NaN,
			Infinity: Infinity,
			"-Infinity": -Infinity
		};
		if (e.fill_value in t) return t[e.fill_value];
	}
	return e.fill_value;
}
function Xu(e, ...t) {
	if (!t.some((t) => e instanceof t)) throw e;
}
function Zu(e, t = "") {
	if (!e) throw Error(t);
}
async function Qu(e, { format: t, signal: n }) {
	let r;
	if (e instanceof ArrayBuffer) r = new Response(e);
	else {
		let t = new Uint8Array(e.buffer, e.byteOffset, e.byteLength);
		r = new Response(t.slice().buffer);
	}
	Zu(r.body, "Response does not contain body.");
	try {
		return await new Response(r.body.pipeThrough(new DecompressionStream(t), { signal: n })).arrayBuffer();
	} catch {
		throw n?.throwIfAborted(), Error(`Failed to decode ${t}`);
	}
}
// node_modules/zarrita/dist/src/codecs/bytes.js
var $u = ed();
function ed() {
	let e = new Uint32Array([305419896]);
	return new Uint8Array(e.buffer, e.byteOffset, e.byteLength)[0] !== 18;
}
function td(e) {
	return "BYTES_PER_ELEMENT" in e ? e.BYTES_PER_ELEMENT : 4;
}
var nd = class e {
	kind = "array_to_bytes";
	#e;
	#t;
	#n;
	#r;
	#i;
	constructor(e, t) {
		this.#i = e?.endian, this.#t = Bu(t.dataType), this.#r = t.shape, this.#e = Vu(t.shape, "C");
		let n = new this.#t(0);
		this.#n = n.BYTES_PER_ELEMENT;
	}
	static fromConfig(t, n) {
		return new e(t, n);
	}
	encode(e) {
		let t = new Uint8Array(e.data.buffer);
		return $u && this.#i === "big" && (t = t.slice(), zu(t, td(this.#t))), t;
	}
	computeEncodedSize(e) {
		return e;
	}
	decode(e) {
		return $u && this.#i === "big" && (e = e.slice(), zu(e, td(this.#t))), e.byteOffset % this.#n !== 0 && (e = e.slice()), {
			data: new this.#t(e.buffer, e.byteOffset, e.byteLength / this.#n),
			shape: this.#r,
			stride: this.#e
		};
	}
}, rd = {
	NaN: NaN,
	Infinity: Infinity,
	"-Infinity": -Infinity
}, id = {
	float16: 2,
	float32: 4,
	float64: 8
};
function ad(e) {
	return e in id;
}
function od(e) {
	return e === "int64" || e === "uint64";
}
function sd(e, t) {
	let n = BigInt(e), r = new ArrayBuffer(t), i = new DataView(r);
	if (t === 2) {
		if (typeof i.getFloat16 != "function") throw new ku("float16 hex-encoded scalar decoding (requires DataView.prototype.getFloat16)");
		return i.setUint16(0, Number(n)), i.getFloat16(0);
	}
	return t === 4 ? (i.setUint32(0, Number(n)), i.getFloat32(0)) : (i.setBigUint64(0, n), i.getFloat64(0));
}
function cd(e, t) {
	if (od(e)) {
		if (typeof t != "number" || !Number.isInteger(t)) throw new Eu(`Expected an integer value for data type "${e}", got ${JSON.stringify(t)}`);
		return BigInt(t);
	}
	if (typeof t == "number") {
		if (!ad(e) && !Number.isInteger(t)) throw new Eu(`Expected an integer value for data type "${e}", got ${t}`);
		return t;
	}
	if (!ad(e)) throw new Eu(`String-encoded scalar "${t}" is not valid for non-float data type "${e}"`);
	return t in rd ? rd[t] : sd(t, id[e]);
}
// node_modules/zarrita/dist/src/codecs/cast_value.js
var ld = /* @__PURE__ */ new Set([
	"int8",
	"uint8",
	"int16",
	"uint16",
	"int32",
	"uint32",
	"int64",
	"uint64",
	"float16",
	"float32",
	"float64"
]), ud = {
	int8: [-128, 127],
	uint8: [0, 255],
	int16: [-(2 ** 15), 2 ** 15 - 1],
	uint16: [0, 2 ** 16 - 1],
	int32: [-(2 ** 31), 2 ** 31 - 1],
	uint32: [0, 2 ** 32 - 1]
}, dd = {
	int64: [-(2n ** 63n), 2n ** 63n - 1n],
	uint64: [0n, 2n ** 64n - 1n]
};
function fd(e, t, n) {
	return e.map(([e, r]) => ({
		src: cd(t, e),
		tgt: cd(n, r)
	}));
}
function pd(e, t) {
	for (let n of t) if (typeof n.src == "number" && Number.isNaN(n.src)) {
		if (typeof e == "number" && Number.isNaN(e)) return n.tgt;
	} else if (e === n.src) return n.tgt;
}
function md(e) {
	if (!Number.isFinite(e)) return e;
	if (Math.abs(e - Math.trunc(e)) === .5) {
		let t = Math.floor(e), n = Math.ceil(e);
		return t % 2 == 0 ? t : n;
	}
	return Math.round(e);
}
function hd(e) {
	return Math.sign(e) * Math.floor(Math.abs(e) + .5);
}
function gd(e) {
	switch (e) {
		case "nearest-even": return md;
		case "towards-zero": return Math.trunc;
		case "towards-positive": return Math.ceil;
		case "towards-negative": return Math.floor;
		case "nearest-away": return hd;
	}
}
function _d(e, t, n) {
	let r = t - e + 1;
	switch (n) {
		case "clamp": return (n) => n < e ? e : n > t ? t : n;
		case "wrap": return (n) => n >= e && n <= t ? n : ((n - e) % r + r) % r + e;
		default: return (n) => {
			if (n >= e && n <= t) return n;
			throw Error(`Value ${n} out of range [${e}, ${t}]. Set out_of_range='clamp' or out_of_range='wrap' to handle this.`);
		};
	}
}
function vd(e, t, n) {
	let r = t - e + 1n;
	switch (n) {
		case "clamp": return (n) => n < e ? e : n > t ? t : n;
		case "wrap": return (n) => n >= e && n <= t ? n : ((n - e) % r + r) % r + e;
		default: return (n) => {
			if (n >= e && n <= t) return n;
			throw Error(`Value ${n} out of range [${e}, ${t}]. Set out_of_range='clamp' or out_of_range='wrap' to handle this.`);
		};
	}
}
var yd = class e {
	kind = "array_to_array";
	#e;
	#t;
	#n;
	#r;
	constructor(e, t, n, r, i, a) {
		this.#e = t, this.#t = Bu(e), this.#n = bd(t, e, n, r, i), this.#r = bd(e, t, n, r, a);
	}
	getEncodedMeta(e) {
		let t = e.fillValue;
		return t != null && (t = this.#r(t)), {
			...e,
			dataType: this.#e,
			fillValue: t
		};
	}
	static fromConfig(t, n) {
		let r = n.dataType, i = t.data_type;
		if (!ld.has(r)) throw new Eu(`cast_value codec does not support array data type: ${r}`);
		if (!ld.has(i)) throw new Eu(`cast_value codec does not support encoded data type: ${i}`);
		let a = t.rounding ?? "nearest-even", o = t.scalar_map?.decode ? fd(t.scalar_map.decode, i, r) : [], s = t.scalar_map?.encode ? fd(t.scalar_map.encode, r, i) : [];
		return new e(r, i, a, t.out_of_range, o, s);
	}
	encode = Au("cast_value");
	decode(e) {
		let t = e.data, n = new this.#t(t.length);
		for (let e = 0; e < t.length; e++) n[e] = this.#n(t[e]);
		return {
			data: n,
			shape: e.shape,
			stride: e.stride
		};
	}
};
function bd(e, t, n, r, i) {
	let a = ad(e), o = od(e), s = ad(t), c = od(t), l;
	if (a && s) {
		if (n !== "nearest-even") throw new Eu(`cast_value float -> float only supports "nearest-even" rounding, got "${n}"`);
		l = (e) => e;
	} else if (a && !s && !c) {
		let e = gd(n), i = _d(...ud[t], r);
		l = (t) => {
			if (!Number.isFinite(t)) throw Error(`Cannot cast ${t} to integer type without scalar_map`);
			return i(e(t));
		};
	} else if (a && c) {
		let e = gd(n), i = vd(...dd[t], r);
		l = (t) => {
			if (!Number.isFinite(t)) throw Error(`Cannot cast ${t} to integer type without scalar_map`);
			return i(BigInt(e(t)));
		};
	} else if (!a && !o && s) l = (e) => e;
	else if (o && s) l = (e) => Number(e);
	else if (!a && !o && !s && !c) l = _d(...ud[t], r);
	else if (!a && !o && c) {
		let e = vd(...dd[t], r);
		l = (t) => e(BigInt(t));
	} else if (o && !s && !c) {
		let e = _d(...ud[t], r);
		l = (t) => e(Number(t));
	} else if (o && c) l = vd(...dd[t], r);
	else throw Error(`Unhandled type combination: ${e} -> ${t}`);
	return i.length === 0 ? l : (e) => {
		let t = pd(e, i);
		return t === void 0 ? l(e) : t;
	};
}
// node_modules/zarrita/dist/src/codecs/crc32c.js
var xd = class e {
	kind = "bytes_to_bytes";
	static fromConfig() {
		return new e();
	}
	encode = Au("crc32c");
	decode(e) {
		return new Uint8Array(e.buffer, e.byteOffset, e.byteLength - 4);
	}
	computeEncodedSize(e) {
		return e + 4;
	}
}, Sd = /* @__PURE__ */ new Set([
	"int8",
	"uint8",
	"int16",
	"uint16",
	"int32",
	"uint32",
	"int64",
	"uint64",
	"float16",
	"float32",
	"float64"
]);
function Cd(e, t) {
	let n = e.length, r = n === 0 || t[n - 1] === 1;
	for (let i = n - 2; i >= 0 && r; i--) r = t[i] === t[i + 1] * e[i + 1];
	if (r) return;
	let i = n === 0 || t[0] === 1;
	for (let r = 1; r < n && i; r++) i = t[r] === t[r - 1] * e[r - 1];
	if (!i) throw Error(`DeltaCodec requires C- or Fortran-contiguous strides, got shape=${JSON.stringify(e)} stride=${JSON.stringify(t)}`);
}
var wd = class e {
	kind = "array_to_array";
	#e;
	constructor(e) {
		this.#e = e;
	}
	static fromConfig(t, n) {
		if (!Sd.has(n.dataType)) throw new Eu(`Delta codec does not support data type: ${n.dataType}`);
		return new e(Bu(n.dataType));
	}
	encode(e) {
		Cd(e.shape, e.stride);
		let t = e.data, n = new this.#e(t.length);
		n[0] = t[0];
		for (let e = 1; e < t.length; e++) n[e] = t[e] - t[e - 1];
		return {
			data: n,
			shape: e.shape,
			stride: e.stride
		};
	}
	decode(e) {
		Cd(e.shape, e.stride);
		let t = e.data, n = new this.#e(t.length);
		n[0] = t[0];
		for (let e = 1; e < t.length; e++) n[e] = n[e - 1] + t[e];
		return {
			data: n,
			shape: e.shape,
			stride: e.stride
		};
	}
}, Td = class e {
	kind = "bytes_to_bytes";
	static fromConfig(t) {
		return new e();
	}
	encode = Au("gzip");
	async decode(e) {
		let t = await Qu(e, { format: "gzip" });
		return new Uint8Array(t);
	}
};
// node_modules/zarrita/dist/src/codecs/json2.js
function Ed(e, t) {
	return Zu(!Number.isNaN(t), "JsonCodec allow_nan is false but NaN was encountered during encoding."), Zu(t !== Infinity, "JsonCodec allow_nan is false but Infinity was encountered during encoding."), Zu(t !== -Infinity, "JsonCodec allow_nan is false but -Infinity was encountered during encoding."), t;
}
function Dd(e, t) {
	return t instanceof Object && !Array.isArray(t) ? Object.keys(t).sort().reduce((e, n) => (e[n] = t[n], e), {}) : t;
}
var Od = class e {
	configuration;
	kind = "array_to_bytes";
	#e;
	#t;
	constructor(e = {}) {
		this.configuration = e;
		let { encoding: t = "utf-8", skipkeys: n = !1, ensure_ascii: r = !0, check_circular: i = !0, allow_nan: a = !0, sort_keys: o = !0, indent: s, strict: c = !0 } = e, l = e.separators;
		l ||= s ? [", ", ": "] : [",", ":"], this.#e = {
			encoding: t,
			skipkeys: n,
			ensure_ascii: r,
			check_circular: i,
			allow_nan: a,
			indent: s,
			separators: l,
			sort_keys: o
		}, this.#t = { strict: c };
	}
	static fromConfig(t) {
		return new e(t);
	}
	encode(e) {
		let { indent: t, encoding: n, ensure_ascii: r, check_circular: i, allow_nan: a, sort_keys: o } = this.#e;
		Zu(n === "utf-8", "JsonCodec does not yet support non-utf-8 encoding.");
		let s = [];
		Zu(i, "JsonCodec does not yet support skipping the check for circular references during encoding."), a || s.push(Ed), o && s.push(Dd);
		let c = Array.from(e.data);
		c.push("|O"), c.push(e.shape);
		let l;
		s.length && (l = (e, t) => {
			let n = t;
			for (let t of s) n = t(e, n);
			return n;
		});
		let u = JSON.stringify(c, l, t);
		return r && (u = u.replace(/[\u007F-\uFFFF]/g, (e) => {
			let t = `0000${e.charCodeAt(0).toString(16)}`;
			return `\\u${t.substring(t.length - 4)}`;
		})), new TextEncoder().encode(u);
	}
	decode(e) {
		let { strict: t } = this.#t;
		Zu(t, "JsonCodec does not yet support non-strict decoding.");
		let n = Ru(e), r = n.pop();
		return n.pop(), Zu(r, "0D not implemented for JsonCodec."), {
			data: n,
			shape: r,
			stride: Vu(r, "C")
		};
	}
}, kd = /* @__PURE__ */ new Set([
	"int8",
	"uint8",
	"int16",
	"uint16",
	"int32",
	"uint32",
	"int64",
	"uint64",
	"float16",
	"float32",
	"float64"
]), Ad = class e {
	kind = "array_to_array";
	#e;
	#t;
	#n;
	constructor(e, t, n) {
		this.#t = e, this.#n = t, this.#e = n;
	}
	static fromConfig(t, n) {
		if (!kd.has(n.dataType)) throw new Eu(`scale_offset codec does not support data type: ${n.dataType}`);
		return new e(cd(n.dataType, t.scale ?? 1), cd(n.dataType, t.offset ?? 0), Bu(n.dataType));
	}
	encode = Au("scale_offset");
	decode(e) {
		let t = e.data, n = new this.#e(t.length);
		for (let e = 0; e < t.length; e++) n[e] = t[e] / this.#t + this.#n;
		return {
			data: n,
			shape: e.shape,
			stride: e.stride
		};
	}
}, jd = class e {
	kind = "bytes_to_bytes";
	#e;
	constructor(e, t) {
		if (t) {
			let e = new (Bu(t.dataType))(0);
			Zu("BYTES_PER_ELEMENT" in e, `Shuffle codec requires a fixed-size dtype, got "${t.dataType}"`), this.#e = e.BYTES_PER_ELEMENT;
		} else this.#e = e.elementsize ?? 4;
	}
	static fromConfig(t, n) {
		return new e(t, n);
	}
	encode(e) {
		return Md(e, this.#e);
	}
	decode(e) {
		return Nd(e, this.#e);
	}
};
function Md(e, t) {
	let n = e.length, r = Math.floor(n / t), i = new Uint8Array(n);
	for (let n = 0; n < t; n++) for (let a = 0; a < r; a++) i[n * r + a] = e[a * t + n];
	return i;
}
function Nd(e, t) {
	let n = e.length, r = Math.floor(n / t), i = new Uint8Array(n);
	for (let n = 0; n < t; n++) for (let a = 0; a < r; a++) i[a * t + n] = e[n * r + a];
	return i;
}
// node_modules/zarrita/dist/src/codecs/transpose.js
function Pd(e) {
	return e instanceof Nu || e instanceof Pu || e instanceof Fu ? new Proxy(e, {
		get(e, t) {
			return e.get(Number(t));
		},
		set(e, t, n) {
			return e.set(Number(t), n), !0;
		}
	}) : e;
}
function Fd(e, t) {
	let n;
	return n = e.data instanceof Pu || e.data instanceof Fu ? new e.data.constructor(e.data.chars, e.data.length) : new e.data.constructor(e.data.length), {
		data: n,
		shape: e.shape,
		stride: Vu(e.shape, t)
	};
}
function Id(e, t) {
	let n = Fd(e, t), r = e.shape.length, i = e.shape.reduce((e, t) => e * t, 1), a = Array(r).fill(0), o = Pd(e.data), s = Pd(n.data);
	for (let t = 0; t < i; t++) {
		let t = 0, i = 0;
		for (let o = 0; o < r; o++) t += a[o] * e.stride[o], i += a[o] * n.stride[o];
		s[i] = o[t], a[0] += 1;
		for (let t = 0; t < r; t++) if (a[t] === e.shape[t]) {
			if (t + 1 === r) break;
			a[t] = 0, a[t + 1] += 1;
		}
	}
	return n;
}
function Ld(e) {
	let t = e.shape.length;
	return Zu(t === e.stride.length, "Shape and stride must have the same length."), e.stride.map((e, t) => ({
		stride: e,
		index: t
	})).sort((e, t) => t.stride - e.stride).map((e) => e.index);
}
function Rd(e, t) {
	let n = Ld(e);
	return Zu(n.length === t.length, "Orders must match"), n.every((e, n) => e === t[n]);
}
var zd = class e {
	kind = "array_to_array";
	#e;
	constructor(e, t) {
		let n = e.order ?? "C", r = t.shape.length, i = Array(r);
		if (n === "C") for (let e = 0; e < r; ++e) i[e] = e;
		else if (n === "F") for (let e = 0; e < r; ++e) i[e] = r - e - 1;
		else {
			i = n;
			let e = Array(r);
			i.forEach((t) => {
				Zu(!e[t], `Invalid permutation: ${JSON.stringify(n)}`), e[t] = !0;
			});
		}
		this.#e = i;
	}
	static fromConfig(t, n) {
		return new e(t, n);
	}
	encode(e) {
		return Rd(e, this.#e) ? e : Id(e, this.#e);
	}
	decode(e) {
		return {
			data: e.data,
			shape: e.shape,
			stride: Vu(e.shape, this.#e)
		};
	}
}, Bd = class e {
	kind = "array_to_bytes";
	#e;
	#t;
	constructor(e) {
		this.#e = e, this.#t = Vu(e, "C");
	}
	static fromConfig(t, n) {
		return new e(n.shape);
	}
	encode = Au("vlen-utf8");
	decode(e) {
		let t = new TextDecoder(), n = new DataView(e.buffer), r = Array(n.getUint32(0, !0)), i = 4;
		for (let a = 0; a < r.length; a++) {
			let o = n.getUint32(i, !0);
			i += 4, r[a] = t.decode(e.buffer.slice(i, i + o)), i += o;
		}
		return {
			data: r,
			shape: this.#e,
			stride: this.#t
		};
	}
}, Vd = class e {
	kind = "bytes_to_bytes";
	static fromConfig(t) {
		return new e();
	}
	encode = Au("zlib");
	async decode(e) {
		let t = await Qu(e, { format: "deflate" });
		return new Uint8Array(t);
	}
}, Hd = /* @__PURE__ */ n({ default: () => Ud }), Ud, Wd = t((() => {
	Ud = { fromConfig() {
		throw Error("Page groups use gzip only.");
	} };
}));
// node_modules/zarrita/dist/src/codecs.js
function Gd() {
	let e = () => Promise.resolve().then(() => (Wd(), Hd)).then((e) => e.default), t = () => Promise.resolve().then(() => (Wd(), Hd)).then((e) => e.default), n = () => Promise.resolve().then(() => (Wd(), Hd)).then((e) => e.default), r = () => Td, i = () => Vd;
	return (/* @__PURE__ */ new Map()).set("blosc", e).set("lz4", t).set("zstd", n).set("gzip", r).set("zlib", i).set("transpose", () => zd).set("bytes", () => nd).set("crc32c", () => xd).set("vlen-utf8", () => Bd).set("json2", () => Od).set("bitround", () => ju).set("cast_value", () => yd).set("scale_offset", () => Ad).set("numcodecs.blosc", e).set("numcodecs.lz4", t).set("numcodecs.zstd", n).set("numcodecs.gzip", r).set("numcodecs.zlib", i).set("numcodecs.vlen-utf8", () => Bd).set("numcodecs.shuffle", () => jd).set("numcodecs.delta", () => wd).set("numcodecs.bitround", () => ju).set("numcodecs.json2", () => Od);
}
var Kd = Gd();
function qd(e) {
	let t;
	function n() {
		return t ||= Yd(e), t;
	}
	async function r(e, t, n) {
		try {
			return await n();
		} catch (n) {
			throw new Ou({
				direction: e,
				codec: t,
				cause: n
			});
		}
	}
	return {
		async encode(e) {
			let t = await n();
			for (let { name: n, codec: i } of t.arrayToArray) e = await r("encode", n, () => i.encode(e));
			let i = await r("encode", t.arrayToBytes.name, () => t.arrayToBytes.codec.encode(e));
			for (let { name: e, codec: n } of t.bytesToBytes) i = await r("encode", e, () => n.encode(i));
			return i;
		},
		async decode(e) {
			let t = await n();
			for (let n = t.bytesToBytes.length - 1; n >= 0; n--) {
				let { name: i, codec: a } = t.bytesToBytes[n];
				e = await r("decode", i, () => a.decode(e));
			}
			let i = await r("decode", t.arrayToBytes.name, () => t.arrayToBytes.codec.decode(e));
			for (let e = t.arrayToArray.length - 1; e >= 0; e--) {
				let { name: n, codec: a } = t.arrayToArray[e];
				i = await r("decode", n, () => a.decode(i));
			}
			return i;
		},
		async computeEncodedSize(e) {
			let t = await n(), r = Jd(t.arrayToBytes.name, t.arrayToBytes.codec, e);
			for (let { name: e, codec: n } of t.bytesToBytes) r = Jd(e, n, r);
			return r;
		}
	};
}
function Jd(e, t, n) {
	if (!t.computeEncodedSize) throw new Eu(`Codec "${e}" cannot compute its encoded size; it is not a fixed-size codec and cannot be used in a sharding index pipeline`);
	return t.computeEncodedSize(n);
}
async function Yd(e) {
	let t = e.codecs.map(async (e) => {
		let t = await Kd.get(e.name)?.();
		if (!t) throw new Du(e.name);
		return {
			Codec: t,
			meta: e
		};
	}), n = [], r, i = [], a = { ...e };
	for await (let { Codec: e, meta: o } of t) {
		let t = e.fromConfig(o.configuration, a);
		switch (t.kind) {
			case "array_to_array":
				n.push({
					name: o.name,
					codec: t
				}), t.getEncodedMeta && (a = t.getEncodedMeta(a));
				break;
			case "array_to_bytes":
				r = {
					name: o.name,
					codec: t
				};
				break;
			default: i.push({
				name: o.name,
				codec: t
			});
		}
	}
	if (!r) {
		if (!Xd(a)) throw new Eu(`Cannot encode ${a.dataType} to bytes without a codec`);
		r = {
			name: "bytes",
			codec: nd.fromConfig({ endian: "little" }, a)
		};
	}
	return {
		arrayToArray: n,
		arrayToBytes: r,
		bytesToBytes: i
	};
}
function Xd(e) {
	return e.dataType !== "v2:object" && e.dataType !== "string";
}
// node_modules/zarrita/dist/src/codecs/sharding.js
var Zd = 18446744073709551615n;
function Qd(e, t, n, r) {
	if (!e.store.getRange) throw new ku("sharding requires a store with getRange");
	let i = e.store.getRange.bind(e.store), a = t.map((e, t) => e / r.chunk_shape[t]), o = qd({
		dataType: "uint64",
		shape: [...a, 2],
		codecs: r.index_codecs,
		fillValue: null
	}), s = 16 * a.reduce((e, t) => e * t, 1), c = {};
	return async (t, r) => {
		let l = t.map((e, t) => Math.floor(e / a[t])), u = e.resolve(n(l)).path;
		u in c || (c[u] = (async () => {
			let e = await o.computeEncodedSize(s), t = await i(u, { suffixLength: e }, r);
			return t ? await o.decode(t) : null;
		})().catch((e) => {
			throw delete c[u], e;
		}));
		let d = await c[u];
		if (d === null) return;
		let { data: f, shape: p, stride: m } = d, h = t.map((e, t) => e % p[t]).reduce((e, t, n) => e + t * m[n], 0), g = f[h], _ = f[h + 1];
		if (g !== Zd || _ !== Zd) return i(u, {
			offset: Number(g),
			length: Number(_)
		}, r);
	};
}
// node_modules/zarrita/dist/src/hierarchy.js
var $d = class e {
	store;
	path;
	constructor(e, t = "/") {
		this.store = e, this.path = t;
	}
	resolve(t) {
		let n = new URL(`file://${this.path.endsWith("/") ? this.path : `${this.path}/`}`);
		return new e(this.store, decodeURIComponent(new URL(t, n).pathname));
	}
};
function ef(e) {
	return new $d(e ?? /* @__PURE__ */ new Map());
}
var tf = class extends $d {
	kind = "group";
	#e;
	constructor(e, t, n) {
		super(e, t), this.#e = n;
	}
	get attrs() {
		return this.#e.attributes;
	}
};
function nf(e) {
	return e.find((e) => e.name === "transpose")?.configuration?.order ?? "C";
}
function rf(e, t) {
	let n = new Map(t.map((e, t) => [e, t]));
	return e.filter((e) => n.has(e)).map((e) => n.get(e));
}
function af(e) {
	return (t, n) => Vu(t, globalThis.Array.isArray(e) && n ? rf(e, n) : e);
}
var of = Symbol("zarrita.context");
function sf(e, t) {
	let { configuration: n } = t.codecs.find(Ju) ?? {}, r = {
		encodeChunkKey: Hu(t.chunk_key_encoding),
		TypedArray: Bu(t.data_type),
		fillValue: t.fill_value
	};
	if (n) {
		let i = nf(n.codecs);
		return {
			...r,
			kind: "sharded",
			chunkShape: n.chunk_shape,
			codec: qd({
				dataType: t.data_type,
				shape: n.chunk_shape,
				codecs: n.codecs,
				fillValue: t.fill_value
			}),
			getStrides: af(i),
			getChunkBytes: Qd(e, t.chunk_grid.configuration.chunk_shape, r.encodeChunkKey, n)
		};
	}
	let i = nf(t.codecs);
	return {
		...r,
		kind: "regular",
		chunkShape: t.chunk_grid.configuration.chunk_shape,
		codec: qd({
			dataType: t.data_type,
			shape: t.chunk_grid.configuration.chunk_shape,
			codecs: t.codecs,
			fillValue: t.fill_value
		}),
		getStrides: af(i),
		async getChunkBytes(t, n) {
			let i = r.encodeChunkKey(t), a = e.resolve(i).path;
			return e.store.get(a, n);
		}
	};
}
var cf = class extends $d {
	kind = "array";
	#e;
	[of];
	constructor(e, t, n) {
		super(e, t), this.#e = {
			...n,
			fill_value: Yu(n)
		}, this[of] = sf(this, this.#e);
	}
	get attrs() {
		return this.#e.attributes;
	}
	get dimensionNames() {
		return this.#e.dimension_names;
	}
	get fillValue() {
		return this.#e.fill_value;
	}
	get shape() {
		return this.#e.shape;
	}
	get chunks() {
		return this[of].chunkShape;
	}
	get dtype() {
		return this.#e.data_type;
	}
	async getChunk(e, t, n) {
		n?.useSharedArrayBuffer && Iu();
		let r = this[of], i = await r.getChunkBytes(e, t);
		if (!i) {
			let e = r.chunkShape.reduce((e, t) => e * t, 1), t;
			if (n?.useSharedArrayBuffer) {
				let n = new r.TypedArray(0);
				if (!("BYTES_PER_ELEMENT" in n)) console.warn("zarrita: useSharedArrayBuffer is not supported for non-buffer-backed data types."), t = new r.TypedArray(e);
				else {
					let i = Lu(e * n.BYTES_PER_ELEMENT, !0);
					t = new r.TypedArray(i, 0, e);
				}
			} else t = new r.TypedArray(e);
			return t.fill(r.fillValue), {
				data: t,
				shape: r.chunkShape,
				stride: r.getStrides(r.chunkShape)
			};
		}
		return r.codec.decode(i);
	}
	is(e) {
		return qu(this.dtype, e);
	}
};
// node_modules/zarrita/dist/src/extension/extend.js
function lf(e, t) {
	let n = e;
	for (let e of t) n = n instanceof Promise ? n.then((t) => e(t)) : e(n);
	return n;
}
// node_modules/zarrita/dist/src/extension/extend-array.js
function uf(e, ...t) {
	return lf(e, t);
}
// node_modules/zarrita/dist/src/open.js
async function df(e) {
	let t = e.store.arrayExtensions;
	return t?.length ? await uf(e, ...t) : e;
}
var ff = pf();
function pf() {
	let e = /* @__PURE__ */ new WeakMap();
	function t(t) {
		let n = e.get(t) ?? {
			v2: 0,
			v3: 0
		};
		return e.set(t, n), n;
	}
	return {
		increment(e, n) {
			t(e)[n] += 1;
		},
		versionMax(e) {
			let n = t(e);
			return n.v3 > n.v2 ? "v3" : "v2";
		}
	};
}
async function mf(e, t) {
	let n = await e.store.get(e.resolve(".zattrs").path, { signal: t });
	return n ? Ru(n) : {};
}
async function hf(e, t = {}) {
	let n = "store" in e ? e : new $d(e), { signal: r } = t, i = {};
	return (t.attrs ?? !0) && (i = await mf(n, r)), r?.throwIfAborted(), t.kind === "array" ? gf(n, i, r) : t.kind === "group" ? _f(n, i, r) : gf(n, i, r).catch((e) => (Xu(e, Tu, Eu), _f(n, i, r)));
}
async function gf(e, t, n) {
	let { path: r } = e.resolve(".zarray"), i = await e.store.get(r, { signal: n });
	if (!i) throw new Tu("v2 array", { path: r });
	return ff.increment(e.store, "v2"), df(new cf(e.store, e.path, Gu(Ru(i), t)));
}
async function _f(e, t, n) {
	let { path: r } = e.resolve(".zgroup"), i = await e.store.get(r, { signal: n });
	if (!i) throw new Tu("v2 group", { path: r });
	return ff.increment(e.store, "v2"), new tf(e.store, e.path, Ku(Ru(i), t));
}
async function vf(e, t) {
	let { store: n, path: r } = e.resolve("zarr.json"), i = await e.store.get(r, { signal: t });
	if (!i) throw new Tu("v3 array or group", { path: r });
	let a = Ru(i);
	return a.node_type === "array" && (a.fill_value = Yu(a)), a.node_type === "array" ? df(new cf(n, e.path, a)) : new tf(n, e.path, a);
}
async function yf(e, t = {}) {
	let n = "store" in e ? e : new $d(e), r = await vf(n, t.signal);
	if (ff.increment(n.store, "v3"), t.kind === void 0 || t.kind === "array" && r instanceof cf || t.kind === "group" && r instanceof tf) return r;
	let i = r instanceof cf ? "array" : "group";
	throw new Tu(`${t.kind} at ${n.path}`, {
		path: n.path,
		found: i
	});
}
async function bf(e, t = {}) {
	let n = "store" in e ? e.store : e, r = ff.versionMax(n), i = r === "v2" ? bf.v2 : bf.v3, a = r === "v2" ? bf.v3 : bf.v2;
	return i(e, t).catch((n) => (Xu(n, Tu, Eu), a(e, t)));
}
bf.v2 = hf, bf.v3 = yf;
// src/data/page.ts
var xf = 201326592, Sf = class {
	held = /* @__PURE__ */ new Map();
	sizes = /* @__PURE__ */ new Map();
	total = 0;
	get(e, t) {
		let n = this.held.get(e);
		if (n) return this.held.delete(e), this.held.set(e, n), n;
		let r = t();
		return this.held.set(e, r), r.then((t) => {
			this.sizes.set(e, t.byteLength), this.total += t.byteLength;
			for (let t of this.held.keys()) {
				if (this.total <= xf || t === e) break;
				this.total -= this.sizes.get(t) ?? 0, this.sizes.delete(t), this.held.delete(t);
			}
		}, () => this.held.delete(e)), r;
	}
}, Cf = class {
	name;
	path;
	array;
	cache;
	shape;
	approximate;
	rowLength;
	levels;
	constructor(e, t, n, r) {
		this.name = e, this.path = t, this.array = n, this.cache = r, this.shape = n.shape, this.rowLength = n.shape.slice(1).reduce((e, t) => e * t, 1), this.approximate = n.attrs.quantised ?? null, this.levels = this.approximate && wf(this.approximate);
	}
	size(e) {
		return this.shape[Ml[this.name].indexOf(e)];
	}
	chunk(e) {
		return this.cache.get(`${this.path}/${e}`, async () => {
			let t = [e, ...this.shape.slice(1).map(() => 0)];
			return (await this.array.getChunk(t)).data;
		});
	}
	async stored(e) {
		let t = this.array.chunks[0], n = await this.chunk(Math.floor(e / t)), r = e % t * this.rowLength;
		return n.subarray(r, r + this.rowLength);
	}
	async row(e, t = 0, n = this.rowLength - t) {
		let r = (await this.stored(e)).subarray(t, t + n);
		if (!this.levels) return r;
		let i = new Float32Array(r.length);
		for (let e = 0; e < r.length; e++) i[e] = this.levels[r[e]];
		return i;
	}
	async all() {
		let e = await Promise.all(Array.from({ length: this.shape[0] }, (e, t) => this.row(t)));
		if (e.length === 1) return e[0];
		let t = new ((e[0]?.constructor) ?? Float32Array)(this.shape[0] * this.rowLength);
		return e.forEach((e, n) => t.set(e, n * this.rowLength)), t;
	}
};
function wf(e) {
	let t = /* @__PURE__ */ new Float32Array(256);
	for (let n = 0; n < 255; n++) t[n] = e.kind === "linear" ? n * e.step : n ? 2 ** (e.floor + (n - 1) * e.step) : 0;
	return t[255] = NaN, t;
}
function Tf(e, t) {
	return t.kind === "linear" ? [Math.max(0, e - t.step / 2), e + t.step / 2] : e === 0 ? [0, 2 ** (t.floor - t.step / 2)] : [e * 2 ** (-t.step / 2), e * 2 ** (t.step / 2)];
}
var Ef = class e {
	store;
	document;
	leftOut;
	cache = new Sf();
	arrays = /* @__PURE__ */ new Map();
	attributes = /* @__PURE__ */ new Map();
	constructor(e, t, n) {
		this.store = e, this.document = t, this.leftOut = n;
	}
	static async open(t) {
		let n = await Df(t, ""), r = n.floatlens;
		if (r?.format !== "page") throw Error("There is no page group here.");
		if (r.version > 1) throw Error(`This page reads page groups up to version 1, and this one is ${r.version}.`);
		return new e(t, r, n.left_out ?? {});
	}
	array(e, t) {
		if (!e.arrays.includes(t)) return null;
		let n = `${e.path}/${t}`, r = this.arrays.get(n);
		return r || (r = bf.v3(ef({ get: (e) => this.store.get(e) }).resolve(n), { kind: "array" }).then((e) => new Cf(t, n, e, this.cache)), this.arrays.set(n, r)), r;
	}
	async values(e, t) {
		let n = this.array(e, t);
		return n ? (await n).all() : null;
	}
	async vocabulary(e) {
		return (await this.attributesOf(e.path)).vocabulary;
	}
	async answers(e) {
		return (await this.attributesOf(e)).answers;
	}
	attributesOf(e) {
		let t = this.attributes.get(e);
		return t || this.attributes.set(e, t = Df(this.store, e)), t;
	}
};
async function Df(e, t) {
	let n = await e.get(`/${t ? `${t}/` : ""}zarr.json`);
	if (!n) throw Error(`The page group has no ${t || "root"}.`);
	return JSON.parse(new TextDecoder().decode(n)).attributes;
}
// src/parts/Panel.svelte
var Of = /* @__PURE__ */ U("<p class=\"failed\" role=\"alert\"> </p>"), kf = /* @__PURE__ */ U("<span class=\"dim\"> </span>"), Af = /* @__PURE__ */ U("<li><button class=\"quiet\"><b> </b> <span> </span></button> <span class=\"meter\" aria-hidden=\"true\"><span></span></span> <span class=\"number\"> </span> <!></li>"), jf = /* @__PURE__ */ U("<ol></ol> <p class=\"note\"> </p>", 1), Mf = /* @__PURE__ */ U("<p class=\"note\"> </p>"), Nf = /* @__PURE__ */ U("<section class=\"card evidence\"><header><h3> </h3></header> <!></section>"), Pf = /* @__PURE__ */ U("<span class=\"choice\" role=\"group\" aria-label=\"Rows of the heat map\"><button>layers</button> <button>steps</button></span>"), Ff = /* @__PURE__ */ U("<section class=\"card text\"><!></section> <!> <div class=\"below\"><!> <div class=\"by-layer\"><!> <!> <!></div></div>", 1), If = /* @__PURE__ */ U("<p class=\"note\">Reading …</p>"), Lf = /* @__PURE__ */ U("<div><div class=\"panel-head\"><h2> </h2> <p> </p></div> <!> <!></div>");
function Rf(e, t) {
	Xe(t, !0), $i(() => t.run);
	let n = Zi(), r = n.page, i = /* @__PURE__ */ A(() => r.document.runs[t.run]), a = /* @__PURE__ */ A(() => n.sampleOf(t.run)), o = /* @__PURE__ */ A(() => n.stepIn(t.run)), s = /* @__PURE__ */ A(() => n.layerIn(t.run)), c = /* @__PURE__ */ A(() => n.headIn(t.run)), l = /* @__PURE__ */ A(() => n.groupIn(t.run)), u = /* @__PURE__ */ A(() => n.colour === "share" ? "share" : "lift"), d = /* @__PURE__ */ A(() => Gc(V(u), n.scale === "log")), f = /* @__PURE__ */ A(() => t.run === n.run), p = /* @__PURE__ */ M(null), m = /* @__PURE__ */ M(null), h = /* @__PURE__ */ M(null), g = /* @__PURE__ */ M({}), _ = /* @__PURE__ */ M(/* @__PURE__ */ new Int32Array()), v = /* @__PURE__ */ M(null), y = /* @__PURE__ */ M(null), b = /* @__PURE__ */ M("");
	function x(e) {
		let t = !1;
		return e().then((e) => !t && e(), (e) => !t && N(b, String(e), !0)), () => void (t = !0);
	}
	Cn(() => {
		let e = V(a);
		return x(async () => {
			let [t, n, i] = await Promise.all([
				r.vocabulary(e),
				r.values(e, "final"),
				r.values(e, "float_index")
			]);
			return () => (N(g, t), N(_, n), N(v, i));
		});
	}), Cn(() => {
		let [e, t, u, d, f, g, _] = [
			V(i),
			V(a),
			V(o),
			V(s),
			V(c),
			V(l),
			n.heat
		];
		return x(async () => {
			let n = await Il(r, e, t, u), [i, a] = await Promise.all([Rl(r, n, d, f, g), _ === "steps" ? Hl(r, e, t, d, f, g) : Vl(r, n, f, g)]);
			return () => (N(p, n), N(m, i), N(h, a));
		});
	}), Cn(() => {
		let [e, t, o, l, u] = [
			V(i),
			V(a),
			V(f) ? n.row : null,
			V(s),
			V(c)
		];
		return x(async () => {
			let n = o === null ? null : await Wl(r, e, t, o, l, u);
			return () => N(y, n);
		});
	});
	let S = (e) => {
		let t = V(p)?.whole("state")?.[e];
		return t === 2 ? "mask" : t ? $(V(g)[t === 3 ? V(_)[e] : V(p).whole("canvas")[e]] ?? "") : "nothing yet";
	}, C = (e, t, n = "") => {
		if (!t || !Z(e)) return `${Q(e, 5)}${n}`;
		let [r, i] = Tf(e, t);
		return `≈ ${Q(e, 3)}${n} (${Q(r, 2)} to ${Q(i, 2)})`;
	};
	function w(e, t, n, r) {
		let a = V(p)?.whole("role")?.[t], o = V(p)?.whole("confidence")?.[t], s = [["position", String(t)]];
		return a && s.push(["role", jl[a]]), s.push(["state", Al[V(p)?.whole("state")?.[t] ?? 0]]), Z(o) && s.push(["confidence", Q(o, 4)]), e && (s.push(["lift", `${C(e.lift[t], e.approximate)} · null 1`]), s.push(["share", `${e.approximate ? "≈ " : ""}${Q(100 * e.share[t], 5)} % · null ${Q(100 * e.fairShare[t], 5)} %`]), s.push(["rank", e.ranks[t] ? `${e.approximate ? "≈ " : ""}${e.ranks[t]} of ${e.ranks.filter(Boolean).length}` : "–"]), e.standing && s.push(["standing", Gl[e.standing[t]]])), s.push(["layer", `${V(i).layers[n]}, ${V(c) === null ? "mean over heads" : `head ${V(c)}`}`], ["step", `${r} · ${V(i).groups[V(l)]} rows`]), s;
	}
	function T(e, t) {
		let r = e.currentTarget.getBoundingClientRect();
		n.hover = {
			x: r.left + r.width / 2,
			y: r.bottom,
			title: S(t),
			lines: w(V(m), t, V(s), V(o))
		};
	}
	async function E(e, t, u) {
		let { clientX: d, clientY: f } = e, [m, h] = n.heat === "steps" ? [t, V(s)] : [V(o), t], g = m === V(p).step ? V(p) : await Il(r, V(i), V(a), m), _ = await Rl(r, g, h, V(c), V(l));
		n.hover = {
			x: d,
			y: f,
			title: S(u),
			lines: w(_, u, h, m)
		};
	}
	function ee(e) {
		if (!V(f)) return void n.chooseRun(t.run);
		n.key = n.key === e && n.row === null ? null : e;
		let r = V(p)?.whole("state")?.[e] ?? 0;
		n.row = r >= 3 && n.row !== e ? e : null;
	}
	function te(e, t) {
		V(f) && (n.key = t, n.row = null, n.heat === "steps" ? n.goTo(e) : n.layer = e);
	}
	let ne = /* @__PURE__ */ A(() => V(i).layers.map((e, t) => t)), re = (e, t) => V(ne).map((n) => V(p)?.along(e, n, V(l))?.[t] ?? null), ie = (e) => V(ne).map((t) => V(v)?.[(t * V(i).groups.length + V(l)) * kl.length + e] ?? null), ae = /* @__PURE__ */ A(() => V(p) ? Ol.map((e, t) => ({
		name: e,
		colour: t,
		values: re("absorbed", t),
		nulls: re("absorbed_null", t)
	})) : []), oe = /* @__PURE__ */ A(() => V(p) ? [{
		name: "row entropy",
		colour: 0,
		values: V(ne).map((e) => V(p).whole("entropy")?.[e * V(i).groups.length + V(l)] ?? null)
	}] : []), se = /* @__PURE__ */ A(() => [
		{
			name: "float index",
			colour: 0,
			values: ie(0),
			nulls: ie(1),
			nullName: "no memory (chance)"
		},
		{
			name: "across halves",
			colour: 1,
			values: ie(2)
		},
		{
			name: "no movement (noise)",
			colour: 2,
			values: ie(3)
		}
	]), ce = () => ({
		head: [
			n.heat === "steps" ? "step" : "layer",
			"position",
			"token",
			"lift",
			"share",
			"standing"
		],
		rows: V(h) ? Array.from(V(h).lift, (e, t) => {
			let [r, a] = [Math.floor(t / V(h).keys), t % V(h).keys];
			return [
				n.heat === "steps" ? r : V(i).layers[r],
				a,
				S(a),
				e,
				V(h).share[t],
				Gl[V(h).standing?.[t] ?? -1] ?? ""
			];
		}) : []
	}), le = (e) => () => ({
		head: ["layer", ...e.flatMap((e) => [e.name, ...e.nulls ? [`${e.name}, null`] : []])],
		rows: V(ne).map((t) => [V(i).layers[t], ...e.flatMap((e) => [e.values[t], ...e.nulls ? [e.nulls[t]] : []])])
	}), ue = /* @__PURE__ */ A(() => V(p)?.along("rows", V(s), V(l))?.[0] ?? V(p)?.whole("rows")?.[V(l)]);
	var de = Lf();
	let fe;
	var pe = P(de), me = P(pe), he = I(me, !0), ge = I(L(me, 2));
	k(pe);
	var _e = L(pe, 2), ve = (e) => {
		var t = Of(), n = I(t, !0);
		R(() => K(n, V(b))), G(e, t);
	};
	q(_e, (e) => {
		V(b) && e(ve);
	});
	var ye = L(_e, 2), be = (e) => {
		var r = Ff(), l = F(r), v = P(l);
		{
			let e = /* @__PURE__ */ A(() => V(f) ? n.key : null), r = /* @__PURE__ */ A(() => V(f) ? n.row : null), a = /* @__PURE__ */ A(() => V(y)?.keys ?? []), s = /* @__PURE__ */ A(() => `Text of ${V(i).name} at step ${V(o)}`);
			hu(v, {
				get frame() {
					return V(p);
				},
				get vocabulary() {
					return V(g);
				},
				get final() {
					return V(_);
				},
				get profile() {
					return V(m);
				},
				get kind() {
					return V(u);
				},
				get scale() {
					return V(d);
				},
				get keyAt() {
					return V(e);
				},
				get row() {
					return V(r);
				},
				get looks() {
					return V(a);
				},
				get found() {
					return t.found;
				},
				get label() {
					return V(s);
				},
				tell: T,
				leave: () => n.hover = null,
				pick: ee
			});
		}
		k(l);
		var b = L(l, 2), x = (e) => {
			var t = Nf(), r = P(t), o = I(P(r));
			k(r);
			var l = L(r, 2), u = (e) => {
				var t = jf(), r = F(t);
				Y(r, 21, () => V(y).keys, J, (e, t) => {
					var r = Af(), a = P(r), o = P(a), s = I(o, !0), l = I(L(o, 2));
					k(a);
					var u = L(a, 2), d = P(u);
					let f;
					k(u);
					var p = L(u, 2), m = I(p), h = L(p, 2), g = (e) => {
						var n = kf(), r = I(n);
						R(() => K(r, `${V(t).heads ?? ""} of ${V(i).heads ?? ""} heads`)), G(e, n);
					};
					q(h, (e) => {
						V(c) === null && e(g);
					}), k(r), R((e, n, r) => {
						K(s, e), K(l, `at ${V(t).key ?? ""}`), f = oi(d, "", f, { width: n }), K(m, `${V(y).approximate ? "≈ " : ""}${V(c) === null ? "≥ " : ""}${r ?? ""} %`);
					}, [
						() => S(V(t).key),
						() => `${Math.min(100, 100 * V(t).weight)}%`,
						() => Q(100 * V(t).weight, 3)
					]), H("click", a, () => n.key = V(t).key), G(e, r);
				}), k(r);
				var a = I(L(r, 2));
				R(() => K(a, `Layer ${V(i).layers[V(s)] ?? ""}, ${V(c) === null ? "mean over heads; of each head only the strongest keys were kept, so each share is the least it can be" : `head ${V(c)}`}. At the step that committed it.`)), G(e, t);
			}, d = (e) => {
				var t = Mf(), n = I(t, !0);
				R(() => K(n, V(a).skipped["top keys"] ?? "No row of this trace wrote it.")), G(e, t);
			};
			q(l, (e) => {
				V(y)?.keys.length ? e(u) : e(d, -1);
			}), k(t), R((e) => K(o, `Where the row looked that wrote “${e ?? ""}” at ${n.row ?? ""}`), [() => $(V(g)[V(_)[n.row]] ?? "")]), G(e, t);
		};
		q(b, (e) => {
			V(f) && n.row !== null && e(x);
		});
		var C = L(b, 2), w = P(C);
		{
			let e = (e) => {
				var t = Nr(), r = F(t), i = (e) => {
					var t = Pf(), r = P(t), i = L(r, 2);
					k(t), R(() => {
						X(r, "aria-pressed", n.heat !== "steps"), X(i, "aria-pressed", n.heat === "steps");
					}), H("click", r, () => n.heat = "layers"), H("click", i, () => n.heat = "steps"), G(e, t);
				};
				q(r, (e) => {
					V(f) && e(i);
				}), G(e, t);
			}, t = /* @__PURE__ */ A(() => n.heat === "steps" ? `Steps × keys, layer ${V(i).layers[V(s)]}` : `Layers × keys, step ${V(o)}`);
			zc(w, {
				get title() {
					return V(t);
				},
				table: ce,
				tools: e,
				children: (e, t) => {
					var r = Nr(), c = F(r), l = (e) => {
						{
							let t = /* @__PURE__ */ A(() => `Received attention of ${V(i).name}: ${n.heat === "steps" ? "steps" : "layers"} by keys`), r = /* @__PURE__ */ A(() => n.heat === "steps" ? Array.from({ length: V(h).rows }, (e, t) => t) : V(i).layers), a = /* @__PURE__ */ A(() => n.heat === "steps" ? "step" : "layer"), c = /* @__PURE__ */ A(() => n.heat === "steps" ? V(o) : V(s)), l = /* @__PURE__ */ A(() => V(f) ? n.key : null);
							ou(e, {
								get label() {
									return V(t);
								},
								get matrix() {
									return V(h);
								},
								get kind() {
									return V(u);
								},
								get scale() {
									return V(d);
								},
								get rowLabels() {
									return V(r);
								},
								get rowName() {
									return V(a);
								},
								get at() {
									return V(c);
								},
								get keyAt() {
									return V(l);
								},
								tell: E,
								leave: () => n.hover = null,
								pick: te
							});
						}
					}, p = (e) => {
						var t = Mf(), n = I(t, !0);
						R(() => K(n, V(a).skipped["values per head"] ?? V(a).skipped.attention ?? "Nothing was recorded here.")), G(e, t);
					};
					q(c, (e) => {
						V(h) ? e(l) : e(p, -1);
					}), G(e, r);
				},
				$$slots: {
					tools: !0,
					default: !0
				}
			});
		}
		var ne = L(w, 2), re = P(ne);
		{
			let e = /* @__PURE__ */ A(() => le(V(ae)));
			zc(re, {
				title: "Absorption by layer",
				get table() {
					return V(e);
				},
				children: (e, t) => {
					{
						let t = /* @__PURE__ */ A(() => V(f) ? (e) => n.layer = e : void 0);
						dl(e, {
							label: "Absorption by layer",
							get x() {
								return V(i).layers;
							},
							xLabel: "layer",
							yLabel: "% of the attention",
							unit: "%",
							zero: !0,
							get series() {
								return V(ae);
							},
							get at() {
								return V(s);
							},
							get pick() {
								return V(t);
							}
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
		var ie = L(re, 2);
		{
			let e = /* @__PURE__ */ A(() => le(V(oe))), t = /* @__PURE__ */ A(() => V(a).skipped.entropy ?? "");
			zc(ie, {
				title: "Row entropy by layer",
				get table() {
					return V(e);
				},
				get note() {
					return V(t);
				},
				children: (e, t) => {
					{
						let t = /* @__PURE__ */ A(() => V(f) ? (e) => n.layer = e : void 0);
						dl(e, {
							label: "Row entropy by layer",
							get x() {
								return V(i).layers;
							},
							xLabel: "layer",
							yLabel: "share of its maximum",
							domain: [0, 1],
							get series() {
								return V(oe);
							},
							get at() {
								return V(s);
							},
							height: 150,
							get pick() {
								return V(t);
							}
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
		var ue = L(ie, 2);
		{
			let e = /* @__PURE__ */ A(() => le(V(se))), t = /* @__PURE__ */ A(() => V(a).skipped["float index"] ?? (V(i).autoregressive ? "A step has one row, so movement cannot be told from noise here." : "It floats where “across halves” lies above “no movement”."));
			zc(ue, {
				title: "Float index by layer, whole run",
				get table() {
					return V(e);
				},
				get note() {
					return V(t);
				},
				children: (e, t) => {
					{
						let t = /* @__PURE__ */ A(() => V(f) ? (e) => n.layer = e : void 0);
						dl(e, {
							label: "Float index by layer",
							get x() {
								return V(i).layers;
							},
							xLabel: "layer",
							yLabel: "1 − Jaccard from step to step",
							domain: [0, 1],
							get series() {
								return V(se);
							},
							get at() {
								return V(s);
							},
							height: 170,
							get pick() {
								return V(t);
							}
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
		k(ne), k(C), G(e, r);
	}, xe = (e) => {
		G(e, If());
	};
	q(ye, (e) => {
		V(p) ? e(be) : V(b) || e(xe, 1);
	}), k(de), R((e, n, r) => {
		fe = ii(de, 1, "panel", null, fe, { wide: t.wide }), X(de, "data-shown", V(p)?.step), K(he, e), K(ge, `${n ?? ""} · ${V(i).autoregressive ? "autoregressive" : "diffusion"} · step ${V(o) ?? ""} of ${V(a).steps - 1} · layer ${V(i).layers[V(s)] ?? ""} ·
      ${V(c) === null ? "mean over heads" : `head ${V(c)}`} · ${V(i).groups[V(l)] ?? ""} rows${r ?? ""}`);
	}, [
		() => $(V(i).name),
		() => $(V(i).model),
		() => Z(V(ue)) ? ` (${V(ue)})` : ""
	]), G(e, de), Ze();
}
Cr(["click"]);
// src/views/Watch.svelte
var zf = /* @__PURE__ */ U("<div><!> <!></div>");
function Bf(e, t) {
	Xe(t, !0);
	let n = Zi();
	var r = zf();
	let i;
	var a = P(r);
	{
		let e = /* @__PURE__ */ A(() => n.other === null);
		Rf(a, {
			get run() {
				return n.run;
			},
			get found() {
				return t.found;
			},
			get wide() {
				return V(e);
			}
		});
	}
	var o = L(a, 2), s = (e) => {
		Rf(e, {
			get run() {
				return n.other;
			},
			found: /* @__PURE__ */ new Set(),
			wide: !1
		});
	};
	q(o, (e) => {
		n.other !== null && e(s);
	}), k(r), R(() => i = ii(r, 1, "watch", null, i, { two: n.other !== null })), G(e, r), Ze();
}
// src/parts/Scatter.svelte
var Vf = /* @__PURE__ */ W("<line class=\"grid\" x1=\"52\"></line><text class=\"tick\" x=\"46\" text-anchor=\"end\"> </text>", 1), Hf = /* @__PURE__ */ W("<text class=\"tick\" text-anchor=\"middle\"> </text>"), Uf = /* @__PURE__ */ W("<path></path>"), Wf = /* @__PURE__ */ W("<circle r=\"3.4\"></circle>"), Gf = /* @__PURE__ */ W("<g><!></g>"), Kf = /* @__PURE__ */ U("<div class=\"plot\"><svg data-chart=\"\" role=\"img\"><!><!><text class=\"axis-label\" x=\"52\" y=\"11\"> </text><text class=\"axis-label\" text-anchor=\"end\"> </text><!></svg> <ul class=\"legend\"><li><svg width=\"12\" height=\"10\" aria-hidden=\"true\"><path class=\"point anchor\" d=\"M1 5l5 5 5-5-5-5z\"></path></svg> anchor of the run</li><li><svg width=\"12\" height=\"10\" aria-hidden=\"true\"><circle class=\"point\" cx=\"6\" cy=\"5\" r=\"3.4\"></circle></svg> other key</li></ul></div>");
function qf(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ M(400), i = /* @__PURE__ */ A(() => Array.from({ length: t.x.length }, (e, t) => t).filter((e) => Z(t.x[e]) && Z(t.y[e])).sort((e, n) => Number(t.standing[e] === 1) - Number(t.standing[n] === 1))), a = ea(() => `${t.label} across`, () => l(t.x)), o = ea(() => `${t.label} up`, () => l(t.y)), s = /* @__PURE__ */ A(() => uc(a() ?? [0, 1], [52, V(r) - 14]).nice(5)), c = /* @__PURE__ */ A(() => uc(o() ?? [0, 1], [264, 20]).nice(5));
	function l(e) {
		let t = Array.from(e).filter(Z);
		return t.length ? [Math.min(...t), Math.max(...t)] : null;
	}
	function u(e, r) {
		n.hover = {
			x: e.clientX,
			y: e.clientY,
			title: t.name(r),
			lines: [
				["position", String(r)],
				[t.xLabel, Q(t.x[r], 4)],
				[t.yLabel, Q(t.y[r], 4)],
				["standing", t.standing[r] === 1 ? "anchor of the run" : t.standing[r] === 2 ? "not measured" : "no anchor"]
			]
		};
	}
	var d = Kf(), f = P(d);
	X(f, "height", 300);
	var p = P(f);
	Y(p, 17, () => V(c).ticks(5), J, (e, t) => {
		var n = Vf(), i = F(n), a = L(i), o = I(a, !0);
		R((e, t, n, s) => {
			X(i, "x2", V(r) - 14), X(i, "y1", e), X(i, "y2", t), X(a, "y", n), K(o, s);
		}, [
			() => V(c)(V(t)),
			() => V(c)(V(t)),
			() => V(c)(V(t)) + 3.5,
			() => Q(V(t), 2)
		]), G(e, n);
	});
	var m = L(p);
	Y(m, 17, () => V(s).ticks(5), J, (e, t) => {
		var n = Hf();
		X(n, "y", 280);
		var r = I(n, !0);
		R((e, t) => {
			X(n, "x", e), K(r, t);
		}, [() => V(s)(V(t)), () => Q(V(t), 2)]), G(e, n);
	});
	var h = L(m), g = I(h, !0), _ = L(h);
	X(_, "y", 296);
	var v = I(_, !0);
	Y(L(_), 17, () => V(i), J, (e, r) => {
		var i = Gf(), a = P(i), o = (e) => {
			var i = Uf();
			let a;
			R((e) => {
				a = ii(i, 0, "point anchor", null, a, { chosen: n.key === V(r) }), X(i, "d", e);
			}, [() => `M${V(s)(t.x[V(r)]) - 5.5} ${V(c)(t.y[V(r)])}l5.5 5.5 5.5-5.5-5.5-5.5z`]), G(e, i);
		}, l = (e) => {
			var i = Wf();
			let a;
			R((e, t) => {
				a = ii(i, 0, "point", null, a, { chosen: n.key === V(r) }), X(i, "cx", e), X(i, "cy", t);
			}, [() => V(s)(t.x[V(r)]), () => V(c)(t.y[V(r)])]), G(e, i);
		};
		q(a, (e) => {
			t.standing[V(r)] === 1 ? e(o) : e(l, -1);
		}), k(i), H("pointermove", i, (e) => u(e, V(r))), Sr("pointerleave", i, () => n.hover = null), H("click", i, () => n.key = V(r)), G(e, i);
	}), k(f), Ee(2), k(d), R(() => {
		X(f, "aria-label", t.label), X(f, "viewBox", `0 0 ${V(r)} 300`), K(g, t.yLabel), X(_, "x", V(r) - 14), K(v, t.xLabel);
	}), Oi(d, "clientWidth", (e) => N(r, e)), G(e, d), Ze();
}
Cr(["pointermove", "click"]);
// src/views/Why.svelte
var Jf = /* @__PURE__ */ U("<p class=\"lede\"> </p> <div class=\"grid\"><!> <!> <!> <!> <!> <!> <!> <!> <!> <!></div>", 1);
function Yf(e, t) {
	Xe(t, !0), $i(() => t.place);
	let n = Zi(), r = n.page, i = /* @__PURE__ */ A(() => r.document.runs[t.place]), a = /* @__PURE__ */ A(() => n.sampleOf(t.place)), o = /* @__PURE__ */ A(() => n.groupIn(t.place)), s = /* @__PURE__ */ A(() => n.layerIn(t.place)), c = (e) => new kc(() => r.values(V(a), e)), l = c("geometry"), u = c("geometry_standing"), d = c("geometry_means"), f = c("advantage"), p = c("value_norms"), m = c("role_share"), h = c("role_null"), g = c("role_enrichment"), _ = c("flow"), v = c("flow_null"), y = c("flow_fair"), b = c("rollout"), x = c("rollout_null"), S = new kc(() => r.vocabulary(V(a))), C = c("final"), w = /* @__PURE__ */ A(() => V(i).layers.map((e, t) => t)), T = /* @__PURE__ */ A(() => V(i).groups.length), E = /* @__PURE__ */ A(() => V(a).positions), ee = (e) => l.value.subarray(((e * V(w).length + V(s)) * V(T) + V(o)) * V(E), ((e * V(w).length + V(s)) * V(T) + V(o) + 1) * V(E)), te = (e) => $(S.value?.[C.value?.[e] ?? -1] ?? ""), ne = (e, t) => V(w).map((n) => e?.[t(n)] ?? null), re = (e, t) => ne(d.value, (n) => ((e * V(w).length + n) * V(T) + V(o)) * 2 + t), ie = (e) => ["anchors", "other keys"].map((t, n) => ({
		name: t,
		colour: n,
		values: re(e, n)
	})), ae = /* @__PURE__ */ A(() => [
		"advantage",
		"by direction",
		"by norm"
	].map((e, t) => ({
		name: e,
		colour: t,
		values: ne(f.value, (e) => (e * V(T) + V(o)) * 3 + t)
	}))), oe = /* @__PURE__ */ A(() => ["anchors", "other keys"].map((e, t) => ({
		name: e,
		colour: t,
		values: ne(p.value, (e) => (e * V(T) + V(o)) * 2 + t)
	}))), se = (e, t) => {
		let n = V(a).roles.indexOf(t), r = e ? e.length / V(T) / V(a).roles.length : 1;
		return ne(e, (e) => ((r === 1 ? 0 : e) * V(T) + V(o)) * V(a).roles.length + n);
	}, ce = /* @__PURE__ */ A(() => V(w).map(() => 1)), le = /* @__PURE__ */ A(() => [
		"structural",
		"lexical",
		"mask"
	].map((e, t) => ({
		name: e,
		colour: t,
		values: se(g.value, e),
		nulls: V(ce),
		nullName: "fair share"
	}))), ue = /* @__PURE__ */ A(() => [
		"structural",
		"lexical",
		"mask"
	].map((e, t) => ({
		name: e,
		colour: t,
		values: se(m.value, e),
		nulls: se(h.value, e)
	}))), de = (e, t) => {
		let n = e ? e.length / V(a).regions.length : 1;
		return ne(e, (e) => (n === 1 ? 0 : e) * V(a).regions.length + t);
	}, fe = /* @__PURE__ */ A(() => V(a).regions.slice(0, 7)), pe = /* @__PURE__ */ A(() => V(fe).map((e, t) => ({
		name: e,
		colour: t,
		values: de(_.value, t),
		nulls: de(v.value, t)
	}))), me = /* @__PURE__ */ A(() => V(fe).map((e, t) => ({
		name: e,
		colour: t,
		values: de(y.value, t),
		...t ? {} : {
			nulls: V(ce),
			nullName: "fair share"
		}
	}))), he = /* @__PURE__ */ A(() => V(fe).map((e, t) => ({
		name: e,
		colour: t,
		values: de(b.value, t),
		nulls: de(x.value, t)
	}))), ge = (e) => () => ({
		head: ["layer", ...e.flatMap((e) => [e.name, ...e.nulls ? [`${e.name}, null`] : []])],
		rows: V(w).map((t) => [V(i).layers[t], ...e.flatMap((e) => [e.values[t], ...e.nulls ? [e.nulls[t]] : []])])
	}), _e = () => ({
		head: ["layer", ...V(a).roles.flatMap((e) => [
			`${e}, share`,
			`${e}, null`,
			`${e}, enrichment`
		])],
		rows: V(w).map((e) => [V(i).layers[e], ...V(a).roles.flatMap((t) => [
			se(m.value, t)[e],
			se(h.value, t)[e],
			se(g.value, t)[e]
		])])
	}), ve = () => ({
		head: [
			"position",
			"token",
			"cosine",
			"norm product",
			"score",
			"anchor"
		],
		rows: Array.from({ length: V(E) }, (e, t) => [
			t,
			te(t),
			ee(0)[t],
			ee(1)[t],
			ee(2)[t],
			u.value[(V(s) * V(T) + V(o)) * V(E) + t] === 1 ? "anchor" : ""
		])
	}), ye = /* @__PURE__ */ A(() => t.place === n.run ? (e) => n.layer = e : void 0), be = (e) => V(a).skipped[e] ?? "This trace holds nothing for it.";
	var xe = Jf(), Se = F(xe), D = I(Se), Ce = L(Se, 2), O = P(Ce);
	{
		let e = /* @__PURE__ */ A(() => `QK geometry of every key, layer ${V(i).layers[V(s)]}`), t = /* @__PURE__ */ A(() => l.value && u.value ? ve : () => ({
			head: [],
			rows: []
		})), n = /* @__PURE__ */ A(() => l.value ? "Anchors are those of all rows of the run together." : be("geometry"));
		zc(O, {
			get title() {
				return V(e);
			},
			get table() {
				return V(t);
			},
			get note() {
				return V(n);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), i = (e) => {
					{
						let t = /* @__PURE__ */ A(() => ee(1)), n = /* @__PURE__ */ A(() => ee(0)), r = /* @__PURE__ */ A(() => u.value.subarray((V(s) * V(T) + V(o)) * V(E), (V(s) * V(T) + V(o) + 1) * V(E)));
						qf(e, {
							label: "Cosine against norm product",
							xLabel: "norm product |q| |k|",
							yLabel: "cosine of q and k",
							get x() {
								return V(t);
							},
							get y() {
								return V(n);
							},
							get standing() {
								return V(r);
							},
							name: te
						});
					}
				};
				q(r, (e) => {
					l.value && u.value && e(i);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var we = L(O, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(V(ae))), t = /* @__PURE__ */ A(() => f.value ? "Direction and norm add up to the advantage, exactly." : be("advantage"));
		zc(we, {
			title: "Score advantage of anchors, by direction and by norm",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Advantage by layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "q·k, anchors minus other keys",
						zero: !0,
						get series() {
							return V(ae);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						},
						height: 240
					});
				};
				q(r, (e) => {
					f.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var Te = L(we, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(ie(0))), t = /* @__PURE__ */ A(() => d.value ? "" : be("geometry"));
		zc(Te, {
			title: "Cosine by layer",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					{
						let t = /* @__PURE__ */ A(() => ie(0));
						dl(e, {
							label: "Cosine by layer",
							get x() {
								return V(i).layers;
							},
							xLabel: "layer",
							yLabel: "mean cosine",
							zero: !0,
							get series() {
								return V(t);
							},
							get at() {
								return V(s);
							},
							get pick() {
								return V(ye);
							}
						});
					}
				};
				q(r, (e) => {
					d.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var Ee = L(Te, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(ie(1))), t = /* @__PURE__ */ A(() => d.value ? "" : be("geometry"));
		zc(Ee, {
			title: "Norm product by layer",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					{
						let t = /* @__PURE__ */ A(() => ie(1));
						dl(e, {
							label: "Norm product by layer",
							get x() {
								return V(i).layers;
							},
							xLabel: "layer",
							yLabel: "mean |q| |k|",
							zero: !0,
							get series() {
								return V(t);
							},
							get at() {
								return V(s);
							},
							get pick() {
								return V(ye);
							}
						});
					}
				};
				q(r, (e) => {
					d.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var De = L(Ee, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(V(oe))), t = /* @__PURE__ */ A(() => p.value ? "Anchors with small values draw attention and hand on little." : be("geometry"));
		zc(De, {
			title: "Value norms by layer",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Value norms by layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "mean |v|",
						zero: !0,
						get series() {
							return V(oe);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						}
					});
				};
				q(r, (e) => {
					p.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var Oe = L(De, 2);
	{
		let e = /* @__PURE__ */ A(() => g.value ? "Anchor mass on a role over its fair share; the table has all roles." : be("roles by depth"));
		zc(Oe, {
			title: "Enrichment of roles by depth",
			table: _e,
			get note() {
				return V(e);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Enrichment of roles by layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "ratio to the fair share",
						zero: !0,
						get series() {
							return V(le);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						}
					});
				};
				q(r, (e) => {
					g.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var ke = L(Oe, 2);
	{
		let e = /* @__PURE__ */ A(() => m.value ? "" : be("roles by depth"));
		zc(ke, {
			title: "Anchor mass by role",
			table: _e,
			get note() {
				return V(e);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Anchor mass by role and layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "share of the anchor mass",
						domain: [0, 1],
						get series() {
							return V(ue);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						}
					});
				};
				q(r, (e) => {
					m.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var Ae = L(ke, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(V(pe))), t = /* @__PURE__ */ A(() => _.value ? `Attention of the rows that write.${V(a).regions.length > 7 ? " The first seven regions." : ""}` : be("region flow"));
		zc(Ae, {
			title: "Direct flow into regions",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Direct flow by layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "share of the attention",
						zero: !0,
						get series() {
							return V(pe);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						},
						height: 240
					});
				};
				q(r, (e) => {
					_.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var je = L(Ae, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(V(me))), t = /* @__PURE__ */ A(() => _.value ? "Direct flow over the region's fair share." : be("region flow"));
		zc(je, {
			title: "Fair flow into regions",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Fair flow by layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "ratio to the fair share",
						zero: !0,
						get series() {
							return V(me);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						},
						height: 240
					});
				};
				q(r, (e) => {
					y.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	var Me = L(je, 2);
	{
		let e = /* @__PURE__ */ A(() => ge(V(he))), t = /* @__PURE__ */ A(() => b.value ? "A rollout without its null says nothing: even attention alone piles up on the first region of a causal model." : be("rollout"));
		zc(Me, {
			title: "Rollout of the answer, with its null",
			get table() {
				return V(e);
			},
			get note() {
				return V(t);
			},
			children: (e, t) => {
				var n = Nr(), r = F(n), a = (e) => {
					dl(e, {
						label: "Rollout by layer",
						get x() {
							return V(i).layers;
						},
						xLabel: "layer",
						yLabel: "share after so many layers",
						domain: [0, 1],
						get series() {
							return V(he);
						},
						get at() {
							return V(s);
						},
						get pick() {
							return V(ye);
						},
						height: 240
					});
				};
				q(r, (e) => {
					b.value && e(a);
				}), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	k(Ce), R((e) => K(D, `Why anchors draw attention, and what they hand on: ${V(i).groups[V(o)] ?? ""} rows of ${e ?? ""}, means over the steps of this text.`), [() => $(V(i).name)]), G(e, xe), Ze();
}
// src/views/Tour.svelte
var Xf = /* @__PURE__ */ U("<b>For these models:</b> ", 1), Zf = /* @__PURE__ */ U("Whether it holds for these models was not checked here; <code>floatlens demo</code> checks such claims, and its folder can be shown beside these runs.", 1), Qf = /* @__PURE__ */ U("<button class=\"stop\"></button>"), $f = /* @__PURE__ */ U("<!><!><!>", 1), ep = /* @__PURE__ */ U("<!><!>", 1), tp = /* @__PURE__ */ U("<section class=\"tour card\" aria-live=\"polite\"><p class=\"dim\"> </p> <h2> </h2> <p class=\"says\"> </p> <p class=\"finding\"><!></p> <div class=\"steps\"><button class=\"choice-button\">Back</button> <!> <button class=\"choice-button\">Next</button></div></section> <!>", 1);
function np(e, t) {
	Xe(t, !0);
	let n = Zi(), r = n.page, i = (e) => {
		let t = r.document.runs.findIndex((t) => t.autoregressive === e);
		t >= 0 && t !== n.run && n.chooseRun(t), n.head = n.key = n.row = null, n.heat = "layers";
	}, a = (e) => {
		let t = r.document.evaluations.findIndex((t) => t.points.some((t) => e(t.kind, t.intervention)));
		t >= 0 && (n.table = t);
	}, o = r.document.evaluations.length > 0, s = [
		{
			title: "The sink",
			says: "Autoregressive models are said to pile their attention on one key, the first token: a sink. In the heat map it would be a bright first column; beside it, its share of the attention stands against its null.",
			claim: "fixed-sink",
			view: "run",
			arrange: () => i(!0)
		},
		{
			title: "The masked canvas",
			says: "A masked diffusion model starts from masks, drawn hatched, and commits some at each step. All its rows look in both directions, and masks are keys like any other. Move the scrubber, or press the space bar.",
			claim: "absorbs-less",
			view: "run",
			arrange: () => {
				i(!1), n.goTo(0);
			}
		},
		{
			title: "Anchors that move",
			says: "Its anchors, marked by diamonds, are said to float: other keys draw most at other steps. Here are steps by keys in one layer. They float if they change by more than noise alone would change them.",
			claim: "floats",
			view: "run",
			arrange: () => {
				i(!1), n.heat = "steps", n.goTo(Math.floor(n.steps / 2));
			}
		},
		{
			title: "Shallow structure, deep content",
			says: "Shallow layers are said to look at structure (special tokens, line breaks, punctuation), deep ones at content. Enrichment compares each role with its fair share.",
			claim: "structure-then-content",
			view: "why",
			arrange: () => i(!1)
		},
		{
			title: "What masking does",
			says: "If the strongest key may not be looked at, an autoregressive model is said to break and a diffusion model to cope. Two controls hide random keys: as many, and as much attention.",
			claim: "masking-tells-apart",
			view: o ? "contexts" : "claims",
			arrange: () => a((e, t) => !!t)
		},
		{
			title: "What passages do",
			says: "Diffusion models are said to gain more from passages, and to mind noise, distance and order less.",
			claim: "gains-more",
			view: o ? "contexts" : "claims",
			arrange: () => a((e, t) => e === "noise" && !t)
		}
	], c = /* @__PURE__ */ A(() => Math.min(n.stop, s.length - 1)), l = /* @__PURE__ */ A(() => s[V(c)]), u = /* @__PURE__ */ A(() => r.document.claims[0]), d = /* @__PURE__ */ A(() => V(u)?.claims.find((e) => e.name === V(l).claim)), f = /* @__PURE__ */ A(() => V(l).view === "claims" && !V(u) ? "run" : V(l).view), p = -1;
	Cn(() => {
		p !== V(c) && (p = V(c), V(l).arrange());
	});
	function m(e) {
		let t = e.numbers.find((e) => Z(e.value)), n = t ? ` ${t.says.charAt(0).toUpperCase()}${t.says.slice(1)}: ${Q(t.value)} ${t.unit}${Z(t.low) ? ` [${Q(t.low)}, ${Q(t.high)}]` : ""}${Z(t.beside) ? `; ${t.beside_says}: ${Q(t.beside)}` : ""}.` : "";
		return `“${e.statement}” ${e.verdict === "not asked" ? "was not asked" : e.verdict === "inconclusive" ? "is inconclusive" : e.verdict}${e.reason ? ` (${e.reason})` : ""}.${n}`;
	}
	var h = tp(), g = F(h), _ = P(g), v = I(_), y = L(_, 2), b = I(y, !0), x = L(y, 2), S = I(x, !0), C = L(x, 2), w = P(C), T = (e) => {
		var t = Xf(), n = L(F(t));
		R((e) => K(n, ` ${e ?? ""}`), [() => $(m(V(d)))]), G(e, t);
	}, E = (e) => {
		var t = Zf();
		Ee(2), G(e, t);
	};
	q(w, (e) => {
		V(d) ? e(T) : e(E, -1);
	}), k(C);
	var ee = L(C, 2), te = P(ee), ne = L(te, 2);
	Y(ne, 17, () => s, J, (e, t, r) => {
		var i = Qf();
		R(() => {
			X(i, "aria-current", r === V(c) ? "step" : void 0), X(i, "aria-label", `Stop ${r + 1}: ${V(t).title}`);
		}), H("click", i, () => n.stop = r), G(e, i);
	});
	var re = L(ne, 2);
	k(ee), k(g);
	var ie = L(g, 2), ae = (e) => {
		var t = $f(), n = F(t);
		ua(n, {});
		var r = L(n);
		Bf(r, { found: /* @__PURE__ */ new Set() }), ga(L(r), {}), G(e, t);
	}, oe = (e) => {
		var t = ep(), r = F(t);
		ua(r, {}), Yf(L(r), { get place() {
			return n.run;
		} }), G(e, t);
	}, se = (e) => {
		Oc(e, {});
	}, ce = (e) => {
		Dl(e, {});
	};
	q(ie, (e) => {
		V(f) === "run" ? e(ae) : V(f) === "why" ? e(oe, 1) : V(f) === "claims" ? e(se, 2) : e(ce, -1);
	}), R(() => {
		K(v, `Stop ${V(c) + 1} of ${s.length ?? ""}`), K(b, V(l).title), K(S, V(l).says), te.disabled = V(c) === 0, re.disabled = V(c) === s.length - 1;
	}), H("click", te, () => n.stop = Math.max(0, V(c) - 1)), H("click", re, () => n.stop = Math.min(s.length - 1, V(c) + 1)), G(e, h), Ze();
}
Cr(["click"]);
// src/views/Training.svelte
var rp = /* @__PURE__ */ U("<option> </option>"), ip = /* @__PURE__ */ U("<tr><td> </td><td> </td><td class=\"number\"> </td><td class=\"number\"> </td><td class=\"number\"> </td></tr>"), ap = /* @__PURE__ */ U("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All measures after this update\"><table><thead><tr><th scope=\"col\">measure</th><th scope=\"col\">run</th><th scope=\"col\">value</th><th scope=\"col\">interval</th><th scope=\"col\">null</th></tr></thead><tbody></tbody></table></div>"), op = /* @__PURE__ */ U("<div class=\"filter\"><label class=\"field\">Measure<select></select></label></div> <div class=\"grid\"><!> <!> <!></div> <div class=\"dock plain\"><span class=\"small\">update</span> <div class=\"strip\"><input type=\"range\" min=\"0\" step=\"1\" aria-label=\"Update\"/></div> <output class=\"where\"><b> </b><span> </span></output></div>", 1);
function sp(e, t) {
	Xe(t, !0);
	let n = Zi(), r = /* @__PURE__ */ A(() => n.page.document.training.flatMap((e) => e.points.map((t) => ({
		...t,
		run: t.run || e.name
	})))), i = /* @__PURE__ */ A(() => [...new Set(V(r).map((e) => e.measure))]), a = /* @__PURE__ */ A(() => V(i).includes(n.measure) ? n.measure : V(i)[0]), o = /* @__PURE__ */ A(() => V(r).filter((e) => e.measure === V(a))), s = /* @__PURE__ */ A(() => V(o).find((e) => e.unit)?.unit ?? ""), c = /* @__PURE__ */ A(() => [...new Set(V(r).map((e) => e.update))].sort((e, t) => e - t)), l = /* @__PURE__ */ A(() => Math.max(0, n.update === null ? V(c).length - 1 : V(c).indexOf(n.update))), u = (e) => [$(e.run), $(e.group)].filter(Boolean).join(", "), d = /* @__PURE__ */ A(() => [...new Set(V(o).map(u))]), f = /* @__PURE__ */ A(() => V(o).filter((e) => e.layer === null)), p = /* @__PURE__ */ A(() => [...new Set(V(o).flatMap((e) => e.layer === null ? [] : [e.layer]))].sort((e, t) => e - t));
	function m(e, t, n) {
		return V(d).slice(0, 7).map((r, i) => {
			let a = t.map((t) => e.find((e) => u(e) === r && n(e) === t)), o = (e) => a.map((t) => t?.[e] ?? null), s = o("null");
			return {
				name: r,
				colour: i,
				values: o("value"),
				low: o("low"),
				high: o("high"),
				...s.some((e) => e !== null) ? { nulls: s } : {}
			};
		});
	}
	let h = (e) => () => ({
		head: [
			"run",
			"update",
			"measure",
			"unit",
			"layer",
			"group",
			"value",
			"low",
			"high",
			"null"
		],
		rows: e.map((e) => [
			e.run,
			e.update,
			e.measure,
			e.unit,
			e.layer,
			e.group,
			e.value,
			e.low,
			e.high,
			e.null
		])
	}), g = /* @__PURE__ */ A(() => V(r).filter((e) => e.update === V(c)[V(l)] && e.layer === null));
	var _ = op(), v = F(_), y = P(v), b = L(P(y));
	Y(b, 21, () => V(i), J, (e, t) => {
		var n = rp(), r = I(n, !0), i = {};
		R((e) => {
			K(r, e), i !== (i = V(t)) && (n.value = (n.__value = i) ?? "");
		}, [() => $(V(t))]), G(e, n);
	}), k(b);
	var x;
	ui(b), k(y), k(v);
	var S = L(v, 2), C = P(S), w = (e) => {
		{
			let t = /* @__PURE__ */ A(() => `${$(V(a))} against the update`), r = /* @__PURE__ */ A(() => h(V(f)));
			zc(e, {
				get title() {
					return V(t);
				},
				get table() {
					return V(r);
				},
				children: (e, t) => {
					{
						let t = /* @__PURE__ */ A(() => `${V(a)} by update`), r = /* @__PURE__ */ A(() => m(V(f), V(c), (e) => e.update));
						dl(e, {
							get label() {
								return V(t);
							},
							get x() {
								return V(c);
							},
							xLabel: "update",
							get yLabel() {
								return V(s);
							},
							get unit() {
								return V(s);
							},
							get series() {
								return V(r);
							},
							get at() {
								return V(l);
							},
							pick: (e) => n.update = V(c)[e],
							height: 280
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
	};
	q(C, (e) => {
		V(f).length && e(w);
	});
	var T = L(C, 2), E = (e) => {
		{
			let t = /* @__PURE__ */ A(() => `${$(V(a))} by layer after update ${V(c)[V(l)]}`), n = /* @__PURE__ */ A(() => h(V(o).filter((e) => e.update === V(c)[V(l)])));
			zc(e, {
				get title() {
					return V(t);
				},
				get table() {
					return V(n);
				},
				children: (e, t) => {
					{
						let t = /* @__PURE__ */ A(() => `${V(a)} by layer`), n = /* @__PURE__ */ A(() => m(V(o).filter((e) => e.update === V(c)[V(l)] && e.layer !== null), V(p), (e) => e.layer));
						dl(e, {
							get label() {
								return V(t);
							},
							get x() {
								return V(p);
							},
							xLabel: "layer",
							get yLabel() {
								return V(s);
							},
							get unit() {
								return V(s);
							},
							get series() {
								return V(n);
							},
							height: 280
						});
					}
				},
				$$slots: { default: !0 }
			});
		}
	};
	q(T, (e) => {
		V(p).length && e(E);
	});
	var ee = L(T, 2);
	{
		let e = /* @__PURE__ */ A(() => `After update ${V(c)[V(l)]}`), t = /* @__PURE__ */ A(() => h(V(g)));
		zc(ee, {
			get title() {
				return V(e);
			},
			get table() {
				return V(t);
			},
			drawn: !1,
			children: (e, t) => {
				var n = ap(), r = P(n), i = L(P(r));
				Y(i, 21, () => V(g), J, (e, t) => {
					var n = ip(), r = P(n), i = I(r, !0), a = L(r), o = I(a, !0), s = L(a), c = I(s), l = L(s), d = I(l, !0), f = I(L(l), !0);
					k(n), R((e, n, r, a, s) => {
						K(i, e), K(o, n), K(c, `${r ?? ""} ${V(t).unit ?? ""}`), K(d, a), K(f, s);
					}, [
						() => $(V(t).measure),
						() => u(V(t)),
						() => Q(V(t).value),
						() => V(t).low === null ? "–" : `[${Q(V(t).low)}, ${Q(V(t).high)}]`,
						() => Q(V(t).null)
					]), G(e, n);
				}), k(i), k(r), k(n), G(e, n);
			},
			$$slots: { default: !0 }
		});
	}
	k(S);
	var te = L(S, 2), ne = L(P(te), 2), re = P(ne);
	vi(re), k(ne);
	var ie = L(ne, 2), ae = P(ie), oe = I(ae, !0), se = I(L(ae));
	k(ie), k(te), R((e) => {
		x !== (x = V(a)) && (b.value = (b.__value = x) ?? "", li(b, x)), X(re, "max", V(c).length - 1), yi(re, V(l)), X(re, "aria-valuetext", `update ${V(c)[V(l)]}`), K(oe, V(c)[V(l)]), K(se, `of ${e ?? ""}`);
	}, [() => V(c).at(-1)]), H("change", b, (e) => n.measure = e.currentTarget.value), H("input", re, (e) => n.update = V(c)[Number(e.currentTarget.value)]), G(e, _), Ze();
}
Cr(["change", "input"]);
// src/App.svelte
var cp = /* @__PURE__ */ U("<button class=\"tab\"> </button>"), lp = /* @__PURE__ */ U("<button class=\"quiet\" aria-keyshortcuts=\"/\">Find <kbd>/</kbd></button>"), up = /* @__PURE__ */ U("<div class=\"search\" role=\"search\"><label>Find a token <input type=\"search\"/></label> <span aria-live=\"polite\"> </span> <button class=\"quiet\">before</button><button class=\"quiet\">next</button> <button class=\"quiet\">close</button></div>"), dp = /* @__PURE__ */ U("<li> </li>"), fp = /* @__PURE__ */ U("<section class=\"help\" aria-label=\"Keys\"><ul></ul></section>"), pp = /* @__PURE__ */ U("<p class=\"note\">This page holds nothing for this view.</p>"), mp = /* @__PURE__ */ U("<p> <!> </p>"), hp = /* @__PURE__ */ U("<dt> </dt><dd> </dd>", 1), gp = /* @__PURE__ */ U("<div role=\"status\"><b><bdi> </bdi></b> <dl></dl></div>"), _p = /* @__PURE__ */ U("<div><header class=\"top\"><a class=\"brand\" href=\"#/run\"><svg width=\"22\" height=\"22\" viewBox=\"0 0 22 22\" aria-hidden=\"true\"><circle cx=\"11\" cy=\"11\" r=\"8.5\"></circle><path d=\"M3 13c3-4 5 2 8-2s5 1 8-2\"></path></svg>floatlens</a> <nav aria-label=\"Views\"></nav> <div class=\"tools\"><!> <button class=\"quiet\"> </button> <button class=\"quiet\" aria-label=\"Keys\">?</button></div></header> <!> <!> <main><!> <!></main> <!> <footer><!> <p> <!></p></footer> <!></div>");
function vp(e, t) {
	Xe(t, !0);
	let n = new qi(t.page);
	Xi(n);
	let r, i = /* @__PURE__ */ M(""), a = /* @__PURE__ */ M([]), o = /* @__PURE__ */ M(void 0), s = /* @__PURE__ */ A(() => Ui.filter((e) => ({
		run: t.page.document.runs.length,
		heads: t.page.document.runs.length,
		why: t.page.document.runs.length,
		claims: t.page.document.claims.length,
		contexts: t.page.document.evaluations.length,
		training: t.page.document.training.length,
		tour: t.page.document.runs.length
	})[e] > 0)), c = /* @__PURE__ */ A(() => [
		"run",
		"heads",
		"why"
	].includes(n.view) && t.page.document.runs.length > 0), l = /* @__PURE__ */ A(() => V(c) || n.view === "tour"), u = /* @__PURE__ */ A(() => n.runDocument);
	if (t.linked) {
		n.follow(location.hash);
		try {
			let e = localStorage.getItem("floatlens-theme");
			(e === "light" || e === "dark") && (n.theme = e);
		} catch {}
	}
	Cn(() => {
		if (!t.linked) return;
		let e = n.link, r = setTimeout(() => location.hash !== e && history.replaceState(null, "", e), 120);
		return () => clearTimeout(r);
	}), Pi(() => {
		if (!t.linked) return;
		let e = () => location.hash !== n.link && n.follow(location.hash);
		return addEventListener("hashchange", e), () => removeEventListener("hashchange", e);
	}), Cn(() => {
		let e = n.sampleDocument;
		if (!e) return;
		let r = !1;
		return Promise.all([t.page.vocabulary(e), t.page.values(e, "final")]).then(([e, t]) => {
			r || N(a, Array.from(t ?? [], (t) => e[t] ?? ""));
		}), () => void (r = !0);
	});
	let d = /* @__PURE__ */ A(() => new Set(V(i).trim() ? [...V(a).keys()].filter((e) => V(a)[e].toLowerCase().includes(V(i).trim().toLowerCase())) : []));
	function f(e = !1) {
		let t = [...V(d)];
		if (!t.length) return;
		let i = n.key ?? -1;
		n.key = e ? t.findLast((e) => e < i) ?? t.at(-1) : t.find((e) => e > i) ?? t[0], r.querySelector(`[data-position="${n.key}"]`)?.scrollIntoView({ block: "nearest" });
	}
	function p() {
		n.searching = !0, setTimeout(() => V(o)?.focus());
	}
	function h() {
		let e = [
			"auto",
			"light",
			"dark"
		];
		n.theme = e[(e.indexOf(n.theme) + 1) % 3];
		try {
			localStorage.setItem("floatlens-theme", n.theme);
		} catch {}
	}
	function g(e) {
		n.view = e, n.playing = !1, n.hover = null;
	}
	let v = [
		[
			"ArrowLeft",
			"← a step back",
			() => n.goTo(n.step - 1)
		],
		[
			"ArrowRight",
			"→ a step on",
			() => n.goTo(n.step + 1)
		],
		[
			"Home",
			"Home the first step",
			() => n.goTo(0)
		],
		[
			"End",
			"End the last step",
			() => n.goTo(n.steps - 1)
		],
		[
			"ArrowUp",
			"↑ a layer up",
			() => n.layer = Math.max(0, n.layer - 1)
		],
		[
			"ArrowDown",
			"↓ a layer down",
			() => n.layer = Math.min((V(u)?.layers.length ?? 1) - 1, n.layer + 1)
		],
		[
			"[",
			"[ the head before",
			() => n.head = n.head === null ? (V(u)?.heads ?? 1) - 1 : n.head === 0 ? null : n.head - 1
		],
		[
			"]",
			"] the next head",
			() => n.head = n.head === null ? 0 : n.head + 1 >= (V(u)?.heads ?? 1) ? null : n.head + 1
		],
		[
			",",
			", the key before",
			() => n.key = Math.max(0, (n.key ?? 1) - 1)
		],
		[
			".",
			". the next key",
			() => n.key = Math.min((n.sampleDocument?.positions ?? 1) - 1, (n.key ?? -1) + 1)
		],
		[
			" ",
			"space play or pause",
			() => n.playing = !n.playing
		],
		[
			"/",
			"/ find a token",
			p
		],
		[
			"?",
			"? these keys",
			() => n.help = !n.help
		],
		[
			"Escape",
			"Esc unpin, close",
			() => n.help || n.searching ? n.help = n.searching = !1 : n.key = n.row = null
		]
	];
	function y(e) {
		if (e.ctrlKey || e.metaKey || e.altKey) return;
		let t = e.target, n = t instanceof HTMLInputElement && t.type !== "range" && t.type !== "checkbox", r = t instanceof HTMLSelectElement || t.closest?.(".scroll") && e.key.startsWith("Arrow") || e.key === " " && t.closest?.("button, a, input, summary");
		if (e.key !== "Escape" && (n || r) || !V(l) && !["?", "Escape"].includes(e.key)) return;
		let i = v.find(([t]) => t === e.key);
		i && (e.preventDefault(), i[2]());
	}
	var b = _p();
	Sr("keydown", rn, (e) => (t.linked || r?.contains(e.target)) && y(e));
	let x;
	var S = P(b), C = P(S), w = L(C, 2);
	Y(w, 21, () => V(s), J, (e, t) => {
		var r = cp(), i = I(r, !0);
		R(() => {
			X(r, "aria-current", n.view === V(t) ? "page" : void 0), K(i, Wi[V(t)]);
		}), H("click", r, () => g(V(t))), G(e, r);
	}), k(w);
	var T = L(w, 2), E = P(T), ee = (e) => {
		var t = lp();
		H("click", t, p), G(e, t);
	};
	q(E, (e) => {
		t.page.document.runs.length && e(ee);
	});
	var te = L(E, 2), ne = I(te, !0), re = L(te, 2);
	k(T), k(S);
	var ie = L(S, 2), ae = (e) => {
		var t = up(), r = P(t), a = L(P(r));
		vi(a), Ai(a, (e) => N(o, e), () => V(o)), k(r);
		var s = L(r, 2), c = I(s, !0), l = L(s, 2), u = L(l), p = L(u, 2);
		k(t), R((e) => K(c, e), [() => V(i).trim() ? `${V(d).size} found` : ""]), H("keydown", a, (e) => e.key === "Enter" && (e.preventDefault(), f(e.shiftKey))), Ci(a, () => V(i), (e) => N(i, e)), H("click", l, () => f(!0)), H("click", u, () => f()), H("click", p, () => {
			n.searching = !1, N(i, "");
		}), G(e, t);
	};
	q(ie, (e) => {
		n.searching && e(ae);
	});
	var oe = L(ie, 2), se = (e) => {
		var t = fp(), n = P(t);
		Y(n, 21, () => v, J, (e, t) => {
			var n = /* @__PURE__ */ A(() => _(V(t), 2));
			let r = () => V(n)[1];
			var i = dp(), a = I(i, !0);
			R(() => K(a, r())), G(e, i);
		}), k(n), k(t), G(e, t);
	};
	q(oe, (e) => {
		n.help && e(se);
	});
	var ce = L(oe, 2), le = P(ce), ue = (e) => {
		ua(e, {});
	};
	q(le, (e) => {
		V(c) && e(ue);
	});
	var de = L(le, 2), fe = (e) => {
		Bf(e, { get found() {
			return V(d);
		} });
	}, pe = (e) => {
		ia(e, {
			of: (e, t = m) => {
				Cu(e, { get shown() {
					return t();
				} });
			},
			$$slots: { of: !0 }
		});
	}, me = (e) => {
		ia(e, {
			of: (e, t = m) => {
				Yf(e, { get place() {
					return t();
				} });
			},
			$$slots: { of: !0 }
		});
	}, he = (e) => {
		Oc(e, {});
	}, ge = (e) => {
		Dl(e, {});
	}, _e = (e) => {
		sp(e, {});
	}, ve = (e) => {
		np(e, {});
	}, ye = (e) => {
		G(e, pp());
	};
	q(de, (e) => {
		n.view === "run" && V(u) ? e(fe) : n.view === "heads" && V(u) ? e(pe, 1) : n.view === "why" && V(u) ? e(me, 2) : n.view === "claims" && t.page.document.claims.length ? e(he, 3) : n.view === "contexts" && t.page.document.evaluations.length ? e(ge, 4) : n.view === "training" && t.page.document.training.length ? e(_e, 5) : n.view === "tour" && V(u) ? e(ve, 6) : e(ye, -1);
	}), k(ce);
	var be = L(ce, 2), xe = (e) => {
		ga(e, {});
	};
	q(be, (e) => {
		V(c) && n.view !== "why" && e(xe);
	});
	var Se = L(be, 2), D = P(Se), Ce = (e) => {
		var t = mp(), n = P(t), r = L(n), i = (e) => {
			var t = Mr();
			R((e) => K(t, `· edited: ${e ?? ""}`), [() => V(u).edits.map($).join("; ")]), G(e, t);
		};
		q(r, (e) => {
			V(u).edits.length && e(i);
		});
		var a = L(r);
		k(t), R((e, t, r) => {
			K(n, `${e ?? ""}${t ?? ""} · sampler ${r ?? ""} · seed ${V(u).seed ?? ""} · ${V(u).dtype ?? ""} on ${V(u).device ?? ""} `), K(a, ` · anchors by ${V(u).rule ?? ""}, eps ${V(u).eps ?? ""}`);
		}, [
			() => $(V(u).model),
			() => V(u).revision ? ` (${$(V(u).revision)})` : "",
			() => Object.entries(V(u).sampler).map(([e, t]) => e === "name" ? t : `${e}=${t}`).join(" ")
		]), G(e, t);
	};
	q(D, (e) => {
		V(u) && e(Ce);
	});
	var O = L(D, 2), we = P(O), Te = L(we), Ee = (e) => {
		var t = Mr();
		R(() => K(t, `· trace written by ${V(u).versions.floatlens ?? ""} with torch ${V(u).versions.torch ?? ""}`)), G(e, t);
	};
	q(Te, (e) => {
		V(u) && e(Ee);
	}), k(O), k(Se);
	var De = L(Se, 2), Oe = (e) => {
		let t = /* @__PURE__ */ A(() => n.hover);
		var r = gp();
		let i, a;
		var o = P(r), s = I(P(o), !0);
		k(o);
		var c = L(o, 2);
		Y(c, 21, () => V(t).lines, J, (e, t) => {
			var n = /* @__PURE__ */ A(() => _(V(t), 2));
			let r = () => V(n)[0], i = () => V(n)[1];
			var a = hp(), o = F(a), s = I(o, !0), c = I(L(o), !0);
			R(() => {
				K(s, r()), K(c, i());
			}), G(e, a);
		}), k(c), k(r), R((e, n) => {
			i = ii(r, 1, "hover", null, i, { above: V(t).y > innerHeight - 260 }), a = oi(r, "", a, {
				left: e,
				top: `${V(t).y + 18}px`
			}), K(s, n);
		}, [() => `${Math.max(8, Math.min(V(t).x + 14, (typeof innerWidth == "number" ? innerWidth : 1200) - 300))}px`, () => V(t).title.length > 90 ? `${V(t).title.slice(0, 90)}… (${V(t).title.length} characters)` : V(t).title]), G(e, r);
	};
	q(De, (e) => {
		n.hover && e(Oe);
	}), k(b), Ai(b, (e) => r = e, () => r), R(() => {
		x = ii(b, 1, "floatlens", null, x, { inside: !t.linked }), X(b, "data-theme", n.theme), X(te, "aria-label", `Theme: ${n.theme}. Change it.`), K(ne, n.theme === "auto" ? "◐" : n.theme === "light" ? "○" : "●"), X(re, "aria-expanded", n.help), K(we, `floatlens ${t.page.document.floatlens ?? ""}`);
	}), H("click", C, (e) => {
		e.preventDefault(), g(V(s)[0]);
	}), H("click", te, h), H("click", re, () => n.help = !n.help), G(e, b), Ze();
}
Cr(["click", "keydown"]);
// src/widget.ts
var yp = { async render({ model: e, el: t }) {
	let n = e.get("files"), r = Rr(vp, {
		target: t,
		props: {
			page: await Ef.open({ async get(e) {
				let t = n[e.replace(/^\//, "")];
				return t && new Uint8Array(t.buffer, t.byteOffset, t.byteLength);
			} }),
			linked: !1
		}
	});
	return () => void Hr(r);
} };
export { yp as default };

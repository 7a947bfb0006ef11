// A device that is not the CPU, for machines that have no other: its memory is host memory of its own, its operators are the CPU's, run on
// copies. A tensor that lives here and one that lives on the CPU never meet in an operator: that raises, as it does on a GPU.
//
// There are two of it, numbered 0 and 1, whose tensors do not meet in an operator either; a copy leads from one to the other.
//
// A copy to the CPU that need not be waited for is made as late as a GPU might make it: when somebody waits for an event that was recorded
// after it. Until then what it writes to is NaN, and what it reads from is read as it is by then. On a stream of its own it is never made
// if the stream did not wait for what had been computed by then, or if nobody has kept what it reads from: a GPU might have copied too
// early, or what others have written there since.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/unfold_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>

namespace {

constexpr auto HERE = c10::DeviceType::PrivateUse1;
const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

constexpr c10::DeviceIndex COUNT = 2;
thread_local c10::DeviceIndex current_device = 0;

struct Memory final : c10::Allocator {
  static void give_back(void* pointer) { std::free(pointer); }
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = bytes ? std::malloc(bytes) : nullptr;
    TORCH_CHECK(!bytes || pointer, "elsewhere: no memory for ", bytes, " bytes");
    if (pointer) std::memset(pointer, 0xFF, bytes);  // what was never written is NaN, and shows
    return {pointer, pointer, &give_back, c10::Device(HERE, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

struct LateCopy {
  at::Tensor from, to;  // both as tensors of the CPU; the first one over memory that is here
  at::Tensor source;    // keeps that memory
  c10::StreamId stream;
  bool too_early;
  int64_t number;
};
struct Event {
  int64_t copies, operators;  // that had begun when it was recorded
};
std::deque<LateCopy> late;
int64_t copies_begun = 0;
int64_t operators_run = 0;
std::map<c10::StreamId, int64_t> waited_for;  // operators, by the streams that waited for an event
int64_t streams_made = 0;
thread_local c10::StreamId current_stream = 0;

void make_late_copies(int64_t until) {
  while (!late.empty() && late.front().number <= until) {
    at::AutoDispatchBelowAutograd below;
    auto& copy = late.front();
    const bool kept = copy.stream == 0 || copy.source.use_count() > 1;
    if (kept && !copy.too_early) copy.to.copy_(copy.from);
    late.pop_front();
  }
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return HERE; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return c10::Device(HERE, current_device); }
  void setDevice(c10::Device device) const override { current_device = device.has_index() ? device.index() : 0; }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.has_index() ? device.index() : 0; }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::UNSAFE, device, current_stream); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, getDevice(), ++streams_made);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = getStream(getDevice());
    current_stream = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return COUNT; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = {copies_begun, stream.id() == 0 ? operators_run : waited_for[stream.id()]};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) waited_for[stream.id()] = std::max(waited_for[stream.id()], static_cast<Event*>(event)->operators);
  }
  bool queryEvent(void* event) const override {
    return !event || late.empty() || late.front().number > static_cast<Event*>(event)->copies;
  }
  void synchronizeEvent(void* event) const override { if (event) make_late_copies(static_cast<Event*>(event)->copies); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const c10::Stream&) const override { return late.empty(); }
  void synchronizeStream(const c10::Stream&) const override { make_late_copies(copies_begun); }
  void synchronizeDevice(const c10::DeviceIndex) const override { make_late_copies(copies_begun); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// The same memory, seen as a CPU tensor.
at::Tensor as_cpu(const at::Tensor& tensor) {
  if (tensor.device().type() != HERE) return tensor;
  auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  if (!tensor.numel()) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

c10::Device chosen(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : c10::Device(HERE, current_device);
}

at::Tensor empty_here(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
                      std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard on(chosen(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, KEYS, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided_here(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                              std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  c10::DeviceGuard on(chosen(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory, KEYS,
                                           c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  at::AutoDispatchBelowAutograd below;
  if (non_blocking && from.device().type() == HERE && to.device().is_cpu() && to.is_contiguous()) {
    if (to.numel()) std::memset(to.data_ptr(), 0xFF, to.nbytes());
    const bool too_early = current_stream != 0 && waited_for[current_stream] < operators_run;
    late.push_back({as_cpu(from), to, from, current_stream, too_early, ++copies_begun});
    return to;
  }
  as_cpu(to).copy_(as_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const at::Tensor& resize_here(const at::Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = tensor.unsafeGetTensorImpl();
  size_t needed = (c10::multiply_integers(sizes) + tensor.storage_offset()) * tensor.itemsize();
  auto storage = tensor.storage();
  if (storage.nbytes() < needed) {
    c10::DeviceGuard on(tensor.device());
    auto grown = memory.allocate(needed);
    if (storage.nbytes()) std::memcpy(grown.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr(std::move(grown));
    storage.set_nbytes(needed);
  }
  impl->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor as_strided_here(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  auto start = offset ? std::optional<int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}

at::Tensor view_here(const at::Tensor& self, c10::SymIntArrayRef size) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)); }

at::Tensor reshape_alias_here(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), self.storage_offset());
}

at::Tensor& set_here(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(source);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                                    offset.guard_int(__FILE__, __LINE__));
  return self;
}

at::Tensor& set_whole_here(at::Tensor& self, at::Storage source) {
  auto numbers = static_cast<int64_t>(source.nbytes() / self.itemsize());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(source);
  self.unsafeGetTensorImpl()->set_sizes_contiguous({numbers});
  return self;
}

// Numbers of half precision multiplied and summed in float32, as CUDA does and the CPU does not.
at::Tensor& product_here(const at::Tensor& self, const at::Tensor& first, const at::Tensor& second, at::ScalarType kind,
                         const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  at::AutoDispatchBelowAutograd below;
  TORCH_CHECK(first.scalar_type() == second.scalar_type(), "elsewhere: two kinds of numbers are multiplied");
  auto result = at::baddbmm(as_cpu(self).to(kind), as_cpu(first).to(kind), as_cpu(second).to(kind), beta, alpha);
  as_cpu(out).copy_(result);
  return out;
}

at::Scalar scalar_here(const at::Tensor& self) { return as_cpu(self).item(); }

// Raise where devices meet. Numbers (tensors without axes) of the CPU may be used everywhere, as on a GPU, and indices of the CPU may pick.
void refuse_mixed(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static const std::set<std::string> may_mix = {"aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"};
  const auto& schema = op.schema();
  const auto name = op.operator_name().overload_name.empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  if (may_mix.count(name)) return;
  bool of_cpu = false;
  std::set<c10::DeviceIndex> of_here;
  auto look = [&](const at::Tensor& tensor) {
    of_cpu |= tensor.defined() && tensor.device().is_cpu() && tensor.dim() > 0;
    if (tensor.defined() && tensor.device().type() == HERE) of_here.insert(tensor.device().index());
  };
  for (const auto& value : torch::jit::last(stack, schema.arguments().size())) {
    if (value.isTensor()) look(value.toTensor());
    if (value.isTensorList()) for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    if (value.isOptionalTensorList()) for (const auto& tensor : value.toOptionalTensorVector()) if (tensor) look(*tensor);
  }
  TORCH_CHECK(!of_cpu, name, ": Expected all tensors to be on the same device, but found at least two devices, elsewhere:0 and cpu");
  TORCH_CHECK(of_here.size() < 2, name, ": Expected all tensors to be on the same device, but found at least two devices, elsewhere:0 and elsewhere:1");
}

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_mixed(op, *stack);
  ++operators_run;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_here);
  m.impl("empty_strided", &empty_strided_here);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize_here);
  m.impl("as_strided", &as_strided_here);
  m.impl("view", &view_here);
  m.impl("_reshape_alias", &reshape_alias_here);
  m.impl("_local_scalar_dense", &scalar_here);
  m.impl("set_.source_Storage", &set_whole_here);
  m.impl("set_.source_Storage_storage_offset", &set_here);
  m.impl("unfold", &at::native::unfold);
  m.impl("baddbmm.dtype_out", &product_here);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>()); }

const bool has_memory = (c10::SetAllocator(HERE, &memory), true);

}  // namespace

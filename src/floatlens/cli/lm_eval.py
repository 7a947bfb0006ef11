"""`floatlens lm-eval`: lm-eval's own command, with `floatlens` among its models."""

import typer


def lm_eval(context: typer.Context) -> None:
    """Evaluate on the tasks of lm-eval, with its own command and floatlens models.

    All options are lm-eval's and reach it as they are; `floatlens lm-eval run --help` lists them. The model is chosen by --model floatlens
    and set up by --model_args: pretrained (a bundled model, a folder, a file or a hub name), dtype, intervention, seed, options of the
    sampler such as steps, block_length, order or threshold; mc_samples, how many sets of masks a diffusion model's likelihood is
    averaged over (128); greedy=true, to compute for diffusion models what greedy decoding would write; max_gen_toks, max_length,
    truncate.

    Needs lm-eval: pip install 'floatlens[lm-eval]'.

    Examples:

      floatlens lm-eval --model floatlens --model_args pretrained=smollm2-mdm,steps=64 --tasks gsm8k --batch_size 8

      floatlens lm-eval --model floatlens --model_args pretrained=smollm2-mdm --model_args intervention=mask-anchors:1 --tasks arc_easy

      floatlens lm-eval ls tasks
    """
    if not context.args:
        typer.echo(context.get_help())
        return
    from floatlens.harnesses.lm_eval_command import run

    run(context.args)

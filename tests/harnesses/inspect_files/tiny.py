"""A task of two questions for inspect_ai."""

from inspect_ai import Task, task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import Sample  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import includes  # pyright: ignore[reportMissingImports]
from inspect_ai.solver import generate  # pyright: ignore[reportMissingImports]

QUESTIONS = {
    "Ada Xu lives in Oslo.\nWhere does Ada Xu live?": "Oslo",
    "Ada Xu lives in Lima. Ben Xu lives in Oslo.\nWhere does Ada Xu live?": "Lima",
}


@task
def tiny() -> Task:
    return Task(dataset=[Sample(question, target=answer) for question, answer in QUESTIONS.items()], solver=generate(), scorer=includes())

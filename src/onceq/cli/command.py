"""How a function becomes a command: its dataclasses become options, its errors exit codes.

A command is a function with an `invoked: Invocation` (where the repository is, --json) and any
arguments of its own. A parameter that is a dataclass becomes one option for each of its
fields, but for those that are values with fields of their own. Nothing else catches every
exception.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_origin, get_type_hints

import msgspec
import typer

import onceq
from onceq.cli.config import Target, choose
from onceq.cli.exits import INTERRUPTED, VIOLATION, exit_code
from onceq.cli.output import Output, hint
from onceq.engine.embedded import embedded_status
from onceq.engine.embedded.locate import EMBEDDED
from onceq.errors import OnceqError


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The options that every command has."""

    url: Annotated[
        str | None,
        typer.Option(help="embedded:PATH or postgresql://...; default: ONCEQ_URL, onceq.toml."),
    ] = None
    repository: Annotated[
        str | None, typer.Option(help="The repository's name; default: ONCEQ_REPOSITORY, onceq.")
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Answer in JSON: one object, or one on each line.")
    ] = False

    def over(self, outer: Invocation | None) -> Invocation:
        """Returns these options; those not given here are taken from before the command."""
        if outer is None:
            return self
        return Invocation(
            url=self.url or outer.url,
            repository=self.repository or outer.repository,
            as_json=self.as_json or outer.as_json,
        )

    @property
    def target(self) -> Target:
        """The repository that is meant. InvalidValue when none is named."""
        return choose(self.url, self.repository, os.environ)

    @property
    def output(self) -> Output:
        """Where the answers go."""
        return Output(self.as_json)

    def open(self) -> onceq.QueueManager:
        """Opens the repository. CannotConnect, SchemaMissing, ..."""
        return onceq.open(**self.target.given)


def command(
    app: typer.Typer, name: str, *, notes: Mapping[str, str] | None = None
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Makes a function a command of an app. It returns the exit code; None means 0.

    notes: help for options from a dataclass without annotations.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        app.command(name)(spread(function, notes or {}))
        return function

    return register


def spread(function: Callable[..., int | None], notes: Mapping[str, str]) -> Callable[..., None]:
    """Returns the function in typer's form: no dataclasses, no exceptions."""
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters
    groups = {name: hints[name] for name in given if dataclasses.is_dataclass(hints[name])}
    parameters = [_parameter("ctx", typer.Context)]
    for name, parameter in given.items():
        if name in groups:
            parameters.extend(_fields_as_parameters(groups[name], notes))
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))

    def call(*, ctx: typer.Context, **values: Any) -> None:
        arguments: dict[str, Any] = {}
        for name, kind in groups.items():
            own = {field.name: values.pop(field.name) for field in _options(kind)}
            with reported(Output(as_json=False)):
                arguments[name] = kind(**own)
        invoked: Invocation = arguments["invoked"].over(ctx.find_root().obj)
        with reported(invoked.output), told_if_made(invoked):
            raise typer.Exit(function(**{**values, **arguments, "invoked": invoked}) or 0)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__doc__, call.__name__ = function.__doc__, function.__name__
    return call


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _options(group: type[Any]) -> list[dataclasses.Field[Any]]:
    return [
        field
        for field in dataclasses.fields(group)
        if not isinstance(field.default, msgspec.Struct)
    ]


def _fields_as_parameters(group: type[Any], notes: Mapping[str, str]) -> list[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    made: list[inspect.Parameter] = []
    for field in _options(group):
        kind = kinds[field.name]
        if get_origin(kind) is not Annotated:
            kind = Annotated[kind, typer.Option(help=notes.get(field.name))]
        default = field.default
        made.append(
            _parameter(
                field.name,
                kind,
                inspect.Parameter.empty if default is dataclasses.MISSING else default,
            )
        )
    return made


@contextlib.contextmanager
def told_if_made(invoked: Invocation) -> Generator[None]:
    """Says on standard error that a command made an embedded PostgreSQL: the path may be wrong."""
    directory = _not_yet_there(invoked)
    try:
        yield
    finally:
        if directory is not None and _not_yet_there(invoked) is None:
            hint(f"onceq: made a new PostgreSQL in {directory}, where there was none")


def _not_yet_there(invoked: Invocation) -> str | None:
    """Returns the directory of an embedded PostgreSQL that is still to be made."""
    try:
        url = invoked.target.url
        directory = url.removeprefix(EMBEDDED)
        missing = url.startswith(EMBEDDED) and embedded_status(directory).version is None
    except OnceqError:  # a command that needs the repository says so itself
        return None
    return directory if missing else None


@contextlib.contextmanager
def reported(output: Output) -> Generator[None]:
    """Turns whatever a command raises into a text on standard error and an exit code."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        hint("onceq: interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has gone: nobody is left to tell, and nothing may be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(VIOLATION) from None
    except (OnceqError, OSError) as error:
        code = exit_code(error)
        output.failure(error, code)
        raise typer.Exit(code) from None
    except Exception as error:  # noqa: BLE001 # the command line's own boundary
        output.failure(error, VIOLATION)
        hint("onceq: this is a defect of onceq; please report it with the command that led to it")
        raise typer.Exit(VIOLATION) from None

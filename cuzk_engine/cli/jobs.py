"""``cuzk jobs``: the jobs of a running engine, for scripts and for machines without a screen. It shows no value of a
witness: the engine tells none."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli.console import ProgressLine, say, say_json
from cuzk_engine.cli.engine import accepted, add_action, add_actions, check_options, connect, with_list
from cuzk_engine.errors import CuzkError, DaemonError, UsageError

if TYPE_CHECKING:
    from cuzk_engine.client import EngineClient, JobInfo

    Subparsers = argparse._SubParsersAction[Any]

_SHOWN: Final = 20
_MOST: Final = 1000  # that an engine lists
_STATES: Final = ("active", "queued", "running", "completed", "failed", "cancelled")
_PRIORITIES: Final = ("low", "normal", "high", "critical")
_LEAST_OF_ID: Final = 4
_CHUNK: Final = 1 << 20


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "jobs",
        help="submit, watch and cancel jobs of a running engine",
        description="The jobs of a running engine; without an action, the newest of them. An ID may be cut to its "
        "beginning, as the list shows it, or be the request's.",
        allow_abbrev=False,
    )
    actions = add_actions(parser)
    parser.set_defaults(limit=None, state=None)
    listed = add_action(actions, "list", "list the newest jobs")
    listed.add_argument("--limit", metavar="N", type=_limit, help=f"at most so many ({_SHOWN}; with --json, all)")
    listed.add_argument("--state", choices=_STATES, help="only those in that state; active: queued or running")
    _add_submit(actions)
    show = add_action(actions, "show", "say all that is known of a job")
    show.add_argument("id", metavar="ID")
    watch = add_action(actions, "watch", "wait for a job's end; exit code 0: completed, 1: failed or cancelled")
    watch.add_argument("id", metavar="ID")
    cancel = add_action(actions, "cancel", "cancel jobs; one that has ended stays as it is, which is no error")
    cancel.add_argument("id", metavar="ID", nargs="+")
    fetch = add_action(actions, "fetch", "write a completed job's proof; several are numbered: PROOF_1.json, …")
    fetch.add_argument("id", metavar="ID")
    fetch.add_argument("proof", metavar="PROOF.json", type=Path)
    fetch.add_argument("public", metavar="PUBLIC.json", type=Path)
    return parser


def _add_submit(actions: Any) -> None:
    submit = add_action(actions, "submit", "hand in a job, and print its id")
    submit.add_argument("key", metavar="KEY.zkey", type=Path)
    submit.add_argument(
        "witness", metavar="WITNESS.wtns", type=Path, nargs="+", help="several make one job of as many proofs"
    )
    submit.add_argument("--priority", choices=_PRIORITIES, default="normal", help="(normal)")
    submit.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="where to prove (auto)")
    submit.add_argument("--label", metavar="TEXT", default="", help="shown with the job")
    submit.add_argument(
        "--request-id", metavar="ID", default="", help="one id gives one job, however often it is handed in"
    )
    submit.add_argument(
        "--stream",
        action="store_true",
        help="send the witness itself, where the engine is elsewhere or may not read the file",
    )
    submit.add_argument("--watch", action="store_true", help="wait for its end, as cuzk jobs watch does")


def completed(arguments: list[str]) -> list[str]:
    return with_list(arguments, _ACTIONS, takes_names=False)


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.cli.signals import terminable

    check_options(args)
    with terminable(), connect(args) as client:
        return _ACTIONS[args.action or "list"](client, args)


# ---- actions ----


def _list(client: EngineClient, args: argparse.Namespace) -> int:
    wanted = ("queued", "running") if args.state == "active" else (args.state,)
    known = client.jobs()
    jobs = [job for job in known if args.state is None or job.state in wanted]
    limit = args.limit or (len(jobs) if args.json else _SHOWN)
    shown = jobs[:limit]
    if args.json:
        say_json({"jobs": [asdict(job) for job in shown]})
        return 0
    from cuzk_engine.cli.job_text import table

    text = table(shown) if shown else ["no jobs"]
    if len(jobs) > limit:
        text.append(f"{len(jobs) - limit:,} older ones are not shown: --limit")
    if len(known) >= _MOST:
        text.append(f"of older ones than the newest {_MOST:,} the engine tells by their ids only")
    say("\n".join(text))
    return 0


def _submit(client: EngineClient, args: argparse.Namespace) -> int:
    from cuzk_engine.client import Priority

    given: dict[str, Any] = {
        "key_path": args.key,
        "priority": Priority(args.priority),
        "request_id": args.request_id,
        "device": "" if args.device == "auto" else args.device,
        "label": args.label,
    }
    first, *others = args.witness
    if args.stream and others:
        raise UsageError("--stream: sends one witness; hand in several by their paths, or as jobs of their own")
    if args.stream:
        job = _send(client, first, given)
    else:
        job = client.submit(witness_path=first, more_witnesses=others, **given)
    if args.watch:
        if not args.json:
            say(job.id)
        return _follow(client, job, args)
    if args.json:
        say_json(asdict(job))
    else:
        say(job.id)
    return 0


def _show(client: EngineClient, args: argparse.Namespace) -> int:
    job = find(client, args.id)
    if args.json:
        say_json(asdict(job))
        return 0
    from cuzk_engine.cli.job_text import details

    say("\n".join(details(job)))
    return 0


def _watch(client: EngineClient, args: argparse.Namespace) -> int:
    return _follow(client, find(client, args.id), args)


def _cancel(client: EngineClient, args: argparse.Namespace) -> int:
    jobs = [find(client, text) for text in args.id]  # all of them, before any is cancelled
    jobs.sort(key=lambda job: not job.queue_position)  # none of them starts because another one makes room
    told = []
    for before in jobs:
        was_running = client.cancel(before.id)
        job = client.job(before.id)
        told.append({"id": job.id, "state": str(job.state), "was_running": was_running})
        if not args.json:
            say(f"{job.id}: " + ("stops as soon as it can" if was_running and not job.state.ended else job.state))
    if args.json:
        say_json({"jobs": told})
    return 0


def _fetch(client: EngineClient, args: argparse.Namespace) -> int:
    from cuzk_engine.cli import outputs
    from cuzk_engine.cli.signals import held_back
    from cuzk_engine.formats.atomic import prepared

    job = find(client, args.id)
    if not job.state.ended:
        raise CuzkError(
            f"job {job.id} has no proof yet: it is {job.state}; wait for it with `cuzk jobs watch {args.id}`"
        )
    pairs = [(args.proof, args.public)]
    if job.partitions > 1:
        numbers = range(1, job.partitions + 1)
        pairs = [(_numbered(args.proof, number), _numbered(args.public, number)) for number in numbers]
    for proof, public in pairs:
        outputs.check_pair(proof, public)
    if len(pairs) == 1:
        result = client.fetch(job.id)
        with held_back():  # an interruption leaves all of the files or none
            outputs.write_pair(args.proof, result.proof_json, args.public, result.public_json)
    else:
        files = [path for pair in pairs for path in pair]
        texts = chain.from_iterable(client.fetch_each(job.id))  # all of them may be more than the memory holds
        with prepared(zip(files, texts, strict=True)) as pending, held_back():
            for file in pending:
                file.commit()
    if args.json:
        files_of = [{"proof": str(proof), "public": str(public)} for proof, public in pairs]
        say_json({"job": job.id, "curve": job.curve, "files": files_of})
    else:
        first, last = pairs[0], pairs[-1]
        names = f"{first[0]}, {first[1]}" + (f" to {last[0]}, {last[1]}" if len(pairs) > 1 else "")
        say(f"{names}: {'proof' if len(pairs) == 1 else f'{len(pairs)} proofs'} of job {job.id}")
    return 0


_ACTIONS: Final[dict[str, Callable[[EngineClient, argparse.Namespace], int]]] = {
    "list": _list,
    "submit": _submit,
    "show": _show,
    "watch": _watch,
    "cancel": _cancel,
    "fetch": _fetch,
}

# ---- inside ----


def find(client: EngineClient, text: str) -> JobInfo:
    """The job with that id, or request id, or the only one whose id begins so. Raises CuzkError."""
    if not text:  # as a script gives it that lost an id; jobs without a request's have that
        raise UsageError("the id of the job is empty")
    if len(text) >= 36:  # a whole id
        try:
            return client.job(text)
        except DaemonError:
            raise
        except CuzkError:
            pass  # it may be a request's
    jobs = client.jobs()
    named = [job for job in jobs if text in (job.id, job.request_id)]
    begun = [job for job in jobs if job.id.startswith(text)] if len(text) >= _LEAST_OF_ID else []
    found = named or begun
    if len(found) > 1:
        raise CuzkError(f"{text}: the ids of {len(found)} jobs begin so; give more of it")
    return found[0] if found else client.job(text)


def _follow(client: EngineClient, job: JobInfo, args: argparse.Namespace) -> int:
    """Until its end."""
    from cuzk_engine.cli.job_text import summary
    from cuzk_engine.client import JobState

    line = ProgressLine(sys.stderr)
    try:
        with accepted(job.id), client.watch(job.id) as changes:
            for job in changes:
                line.draw(_phase(job), job.progress)
    finally:
        line.clear()
    if not job.state.ended:
        raise DaemonError(f"the engine ended; job {job.id} was accepted and goes on when it is there again")
    if args.json:
        say_json(asdict(job))
    else:
        say(summary(job))
    return 0 if job.state is JobState.COMPLETED else 1


def _phase(job: JobInfo) -> str:
    from cuzk_engine.cli.job_text import state

    if job.queue_position:
        return state(job)
    done = f"{job.partitions_done} of {job.partitions} proofs, " if job.partitions > 1 else ""
    return done + (job.phase or job.state)


def _numbered(path: Path, number: int) -> Path:
    if path.name in ("", ".."):  # a folder, which is refused as such
        return path
    return path.with_name(f"{path.stem}_{number}{path.suffix}")


def _send(client: EngineClient, path: Path, given: dict[str, Any]) -> JobInfo:
    try:
        with path.open("rb") as file:
            return client.submit_stream(iter(lambda: file.read(_CHUNK), b""), **given)
    except OSError as error:
        raise CuzkError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _MOST and len(text) < 9):
        raise argparse.ArgumentTypeError(f'"{text}": expected a number from 1 to {_MOST}')
    return int(text)

"""``cuzk settings``: what a running engine is set to, and changes that hold until it ends."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli.console import say, say_json
from cuzk_engine.cli.engine import add_action, add_actions, check_options, connect, with_list
from cuzk_engine.errors import CuzkError, UsageError

if TYPE_CHECKING:
    from cuzk_engine.client import SettingChange, SettingInfo

    Subparsers = argparse._SubParsersAction[Any]

_SWITCHES: Final = {"on": "true", "off": "false"}
_HEADER: Final = ("setting", "value", "default", "from", "changes")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "settings",
        help="see and change the settings of a running engine",
        description="The settings of a running engine; without an action, all of them. A change holds from the next "
        "partition on, until the engine ends: what shall last longer belongs in the configuration file.",
        allow_abbrev=False,
    )
    actions = add_actions(parser)
    parser.set_defaults(name=[], changed=False)
    listed = add_action(actions, "list", "list settings")
    listed.add_argument("name", metavar="NAME", nargs="*", help="only these: a setting, or a group of them (pipeline)")
    listed.add_argument(
        "--changed", action="store_true", help="only what is not at its default, or was changed while running"
    )
    change = add_action(actions, "set", "change settings, all of them or none")
    change.add_argument(
        "change", metavar="NAME=VALUE", nargs="+", help="as in workers=2 prestage=off, or pipeline.prestage=off"
    )
    change.add_argument(
        "--device", metavar="D", help="for one device only; workers have such a value, and NAME=default takes it away"
    )
    return parser


def completed(arguments: list[str]) -> list[str]:
    return with_list(arguments, ("list", "set"), takes_names=True)


def run(args: argparse.Namespace) -> int:
    check_options(args)
    return _set(args) if args.action == "set" else _list(args)


def _list(args: argparse.Namespace) -> int:
    from cuzk_engine.config import FROM_RUNNING

    with connect(args) as client:
        known = client.settings()
    found = _chosen(known, args.name) if args.name else known
    if args.changed:
        found = [item for item in found if item.device or item.value != item.default or item.source == FROM_RUNNING]
    if args.json:
        say_json({"settings": [asdict(item) for item in found]})
    elif found:
        from cuzk_engine.cli.table import lines

        say("\n".join(lines(_HEADER, [_row(item) for item in found])))
    else:
        say("all settings are at their defaults")
    return 0


def _set(args: argparse.Namespace) -> int:
    if args.device == "":  # as a script gives it that lost the name; "" would be all of them
        raise UsageError("--device: the name of the device is empty")
    with connect(args) as client:
        before = client.settings()
        changes = [_change(text, args.device or "", before) for text in args.change]
        _refuse_repeated(change.key for change in changes)
        after = client.apply_settings(changes)
        devices = client.identify().devices
    keys = {change.key for change in changes}
    was = {(item.key, item.device): item.value for item in before}
    now = {(item.key, item.device): item for item in after}
    made = [item for item in after if item.key in keys and was.get((item.key, item.device)) != item.value]
    made += [replace(now[key, ""], device=device) for key, device in was if key in keys and (key, device) not in now]
    if args.json:
        say_json({"changed": [asdict(item) for item in made]})
        return 0
    for item in made:
        old = was.get((item.key, item.device)) or was[item.key, ""]  # a device that had no value of its own
        inert = [device.id for device in devices if item.key in device.inert_settings]
        where = f"; makes no difference on {', '.join(inert)}" if inert else ""
        say(f"{_named(item)} = {item.value} (was {old}){where}")
    if not made:
        say("nothing to change: the engine is set so already")
    for item in after:
        if item.key in keys and item.device and not args.device:
            how = f"--device {item.device} changes that, with NAME=default to what the others have"
            say(f"{_named(item)} stays {item.value}, a value of its own: {how}")
    return 0


def _change(text: str, device: str, known: Iterable[SettingInfo]) -> SettingChange:
    from cuzk_engine.client import SettingChange

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f'"{text}" is not understood, expected NAME=VALUE, as in workers=2')
    key = _key(name)
    types = {item.key: item.type for item in known}
    if key not in types:
        raise _unknown(name, types)
    return SettingChange(key, _SWITCHES.get(value, value) if types[key] == "bool" else value, device)


def _refuse_repeated(keys: Iterable[str]) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0]} is set twice, expected one value: leave one of them out")


def _chosen(known: Sequence[SettingInfo], names: Iterable[str]) -> list[SettingInfo]:
    """In the order of the names. Raises CuzkError for one that is none."""
    found: list[SettingInfo] = []
    for name in names:
        key = _key(name)
        fitting = [item for item in known if item.key == key or item.key.startswith(f"{key}.")]
        if not fitting:
            keys = [item.key for item in known]
            raise _unknown(name, [*keys, *(key.partition(".")[0] for key in keys)])
        found += [item for item in fitting if item not in found]
    return found


def _unknown(name: str, known: Iterable[str]) -> CuzkError:
    from cuzk_engine.bench.variations import SHORT_NAMES
    from cuzk_engine.settings import nearest

    return CuzkError(f"unknown setting {name!r}{nearest(name, [*SHORT_NAMES, *known])}")


def _key(name: str) -> str:
    from cuzk_engine.bench.variations import SHORT_NAMES

    return SHORT_NAMES.get(name.replace("-", "_"), name)


def _row(item: SettingInfo) -> tuple[str, ...]:
    from cuzk_engine.settings import NO_EFFECT

    changes = "live" if item.live else "no effect" if item.help.endswith(NO_EFFECT) else "at start"
    return _named(item), item.value or '""', item.default or '""', item.source, changes


def _named(item: SettingInfo) -> str:
    return f"{item.key} on {item.device}" if item.device else item.key

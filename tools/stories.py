"""Two stories of one device, told by the real window with a real engine on the CPU: what goes wrong, what the window
says of it, and what its button changes.

    tools/stories.py [memory] [idle] [--pictures docs/pictures] [--profile PROFILE]

memory: two workers, room for one, and no plan. An allocation fails; the incident says who held what; its first button
cures it. idle: one worker, evaluation on the host, no pre-staging. The gaps carry their cause; the finding's button
shrinks them; `cuzk record` runs meanwhile, and its file is opened in the window.

Each step is checked: the script fails where the window or the engine does not do what the story tells. The engine has a
home folder and a port of its own, so nothing of the user's is touched. No screen is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PySide6.QtCore import QEventLoop, QPointF, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from cuzk_engine.client import EngineClient, JobState
from cuzk_engine.devices.select import open_device
from cuzk_engine.events import Cause, Finding, Lane, Mark, Remedy
from cuzk_engine.pipeline.admission import ENVIRONMENT as NO_PLAN
from cuzk_engine.pipeline.modes import PipelineSettings
from cuzk_engine.pipeline.report import plan_report, work_of
from cuzk_gui.charts.chart import Chart
from cuzk_gui.demo import OwnEngine, free_port, own_home
from cuzk_gui.models.causes import CAUSES
from cuzk_gui.models.loads import idle_by_cause
from cuzk_gui.models.session import DeviceTimeline, Session
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.widgets.findings_panel import Card
from cuzk_gui.widgets.incident_dialog import IncidentDialog
from cuzk_gui.window import MainWindow
from tests.support.stories import Circuit, Recorder, StoryError, environment, expect, say, write_config

DEVICE: Final = "cpu"
PROFILES: Final = {"memory": "porep:2^13", "idle": "porep:2^11"}
_SIZE: Final = (1600, 1000)
_WAIT_S: Final = 180.0
_LOOK_MS: Final = 20
_SETTLE_NS: Final = 1_500_000_000  # so long after its end all of a job is told


@dataclass(frozen=True, slots=True)
class Proved:
    """A job that has ended, and the stretch of its kernels on the engine's clock."""

    state: JobState
    start_ns: int
    end_ns: int


class Stage:
    """A window with its engine, and a client beside it that hands in proofs as other programs do. ``pictures``: where
    they go; None: none are taken."""

    def __init__(self, circuit: Circuit, settings: Mapping[str, str], theme: Theme, pictures: Path | None) -> None:
        self._circuit, self._theme, self._pictures = circuit, theme, pictures
        write_config(circuit.key.parent, DEVICE, settings)
        self.address = f"127.0.0.1:{free_port()}"
        self._engine = OwnEngine(self.address)
        self._engine.start()
        self._client = EngineClient(self.address)
        preferences = Preferences()
        preferences.on_close = OnClose.KEEP
        self.window = MainWindow(self._engine, theme, preferences)
        self.window.resize(*_SIZE)
        self.window.live.set_sizes(self.window.width())
        self.window.show()

    def __enter__(self) -> Stage:
        self.wait(lambda: self.session.identity is not None and DEVICE in self.session.described, "the engine")
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()
        self.window.close_quietly()
        self.window.deleteLater()
        self._engine.stop()

    @property
    def session(self) -> Session:
        return self.window.live.session

    @property
    def timeline(self) -> DeviceTimeline:
        return self.session.devices[DEVICE]

    def wait(self, condition: Callable[[], object], what: str, seconds: float = _WAIT_S) -> None:
        """Lets the window live until the condition holds. Raises StoryError."""
        loop, looks = QEventLoop(), QTimer()
        deadline = time.monotonic() + seconds
        looks.timeout.connect(lambda: loop.quit() if condition() or time.monotonic() > deadline else None)
        looks.start(_LOOK_MS)
        if not condition():
            loop.exec()
        looks.stop()
        expect(condition(), f"waited {seconds:.0f} s for {what}")

    def settle(self) -> None:
        """Until all that has happened by now is known."""
        now = self.session.latest_ns
        self.wait(lambda: self.session.latest_ns >= now + _SETTLE_NS, "telemetry")

    def hand_in(self, partitions: int, label: str) -> str:
        """A job's id."""
        circuit = self._circuit
        more = [circuit.witness] * (partitions - 1)
        name = self._client.register_circuit(circuit.key, circuit.name).id
        return self._client.submit(circuit_id=name, witness_path=circuit.witness, more_witnesses=more, label=label).id

    def prove(self, partitions: int, label: str) -> Proved:
        """One job, handed in, ended, and known to the window."""
        start = self.session.latest_ns
        job = self.hand_in(partitions, label)
        self.wait(lambda: (known := self.session.jobs.get(job)) is not None and known.state.ended, f"job {label!r}")
        self.settle()
        self.window.live.jobs.select(job)
        ended = self.session.jobs.get(job)
        assert ended is not None
        kernels = self.timeline.tracks[Lane.COMPUTE.value].rows
        inside = kernels["start"] >= start
        return Proved(ended.state, int(kernels["start"][inside][0]), int(kernels["end"][inside][-1]))

    def apply(self, remedy: Remedy, press: Callable[[], None]) -> Mark:
        """Presses a button, and waits until its setting is in effect and marked."""
        before = {mark.time_ns for mark in self.session.marks}
        press()
        self.wait(
            lambda: (
                self.session.settings.value(remedy.key, remedy.device) == remedy.value
                and not self.session.settings.pending(remedy.key, remedy.device)
            ),
            f"{remedy.key} = {remedy.value}",
        )
        marks = self.session.marks
        self.wait(lambda: any(mark.time_ns not in before for mark in marks), f"the mark of {remedy.key}")
        return next(mark for mark in marks if mark.time_ns not in before)

    def show(self, start_ns: int, end_ns: int, beside: float = 0.03) -> None:
        """Moves the time axis; some of it is free at both ends."""
        free = (end_ns - start_ns) * beside
        seconds = self.session.seconds
        self.window.scene.view.show(seconds(round(start_ns - free)), seconds(round(end_ns + free)))
        self.paint()

    @contextlib.contextmanager
    def pointing_at_longest(self, cause: str) -> Iterator[None]:
        """The pointer on the longest gap of a cause, which fills a fifth of the shown stretch."""
        rows = self.timeline.gaps.rows
        lengths = (rows["end"] - rows["start"]) * (rows["group"] == CAUSES.index(cause))
        longest = int(lengths.argmax())
        start, end = int(rows["start"][longest]), int(rows["end"][longest])
        self.show(start, end, beside=2.0)
        lanes = self.window.charts.lanes
        area = lanes.area()
        heights = [y for y in range(int(area.height)) if lanes.lane_at(y, area.height) == Lane.COMPUTE]
        lanes.plot.pointed.emit(QPointF(area.x_of((start + end) // 2), heights[len(heights) // 2]))
        yield
        lanes.plot.pointed.emit(None)

    def paint(self) -> None:
        self.window.notice.hide()
        self.window.tick()
        self.window.shown.show_slow()
        QApplication.processEvents()

    def picture(self, name: str, widget: QWidget | None = None, *, light: bool = False) -> None:
        if self._pictures is None:
            return
        self._theme.choose(ThemeChoice.LIGHT if light else ThemeChoice.DARK)
        self.paint()
        (widget or self.window).grab()  # what follows the first painting, such as legends
        self.paint()
        file = self._pictures / f"{name}.png"
        expect((widget or self.window).grab().save(str(file)), f"{file} was not written")
        say(f"left {file}")
        self._theme.choose(ThemeChoice.DARK)

    def expect_marked(self, mark: Mark) -> None:
        """The mark is drawn across all charts."""
        for chart in self.window.charts.charts:
            expect(_is_marked(chart, mark), f"the mark of {mark.text!r} is not drawn in {chart.title!r}")


def memory_story(stage: Stage, partitions: int = 10) -> None:
    """Two workers, room for one, no plan."""
    before = stage.prove(partitions, "before the cure")
    incidents = stage.session.incidents
    expect(len(incidents) > 0, "no allocation failed")
    record = incidents.records[0]
    stage.wait(lambda: record.frozen is not None, "the frozen picture")
    say(f"{before.state}, {len(incidents)} incidents: {record.incident.message}")
    stage.show(before.start_ns, before.end_ns)
    stage.picture("story-memory-window")

    card = stage.window.live.findings.cards["incident", str(record.number)]
    expect(card.title.text().startswith("Out of memory"), f"the card is titled {card.title.text()!r}")
    card.button.click()
    (dialog,) = [d for d in stage.window.live.findChildren(IncidentDialog) if d.isVisible()]
    picture = record.incident.picture
    assert picture is not None
    holders = {holding.worker for holding in picture.holdings if holding.bytes}
    expect({0, 1} <= holders, f"memory was held by {holders}")
    expect(dialog.remedies, "nothing would have fitted")
    stage.paint()
    stage.picture("story-memory-incident", dialog)
    remedy, button, _ = dialog.remedies[0]
    mark = stage.apply(remedy, button.click)
    dialog.show_states()
    expect(button.text() == "In effect", f"the button says {button.text()!r}")
    dialog.accept()
    say(f"applied {remedy.key} = {remedy.value}")

    count = len(incidents)
    after = stage.prove(partitions, "after the cure")
    expect(after.state is JobState.COMPLETED, f"the job is {after.state}")
    expect(len(incidents) == count, f"{len(incidents) - count} more incidents after the cure")
    say(f"{partitions} partitions more, no further incident")
    stage.show(before.start_ns, after.end_ns)
    stage.expect_marked(mark)
    stage.picture("story-memory-cured")


def idle_story(stage: Stage, partitions: int = 20, shrinks_to: float = 0.5) -> None:
    """One worker, evaluation on the host, no pre-staging. At most ``shrinks_to`` of that idle time is left."""
    before = stage.prove(partitions, "before")
    stage.wait(lambda: _offered(stage) is not None, "a finding with something to change")
    finding, card = _offered_card(stage)
    share = _share(stage, finding.kind, before)
    say(f"{finding.title}; measured {share:.1%}")
    expect(finding.kind == Cause.HOST_STARVED, f"the first finding is {finding.kind}")
    rows = stage.window.live.idle.rows
    expect(finding.kind in rows and not rows[finding.kind].isHidden(), "the table of idle time lacks the cause")
    with stage.pointing_at_longest(finding.kind):
        stage.picture("story-idle-gaps")

    remedy = finding.remedies[0]
    mark = stage.apply(remedy, card.button.click)
    say(f"applied {remedy.key} = {remedy.value}: {remedy.text}")
    after = stage.prove(partitions, "after")
    shrunk = _share(stage, finding.kind, after)
    say(f"{finding.kind}: {share:.1%} before, {shrunk:.1%} after")
    expect(after.state is JobState.COMPLETED, f"the job is {after.state}")
    expect(shrunk < share * shrinks_to, f"{finding.kind} took {share:.1%} before and {shrunk:.1%} after")
    stage.show(before.start_ns, after.end_ns)
    stage.expect_marked(mark)
    stage.wait(lambda: "since" in card.gain.text(), "what the change brought")
    stage.picture("story-idle-cured")
    stage.picture("story-idle-light", light=True)


def watch_recording(stage: Stage, file: Path) -> None:
    """Opens what was recorded in the window; it has the same gaps."""
    live = idle_by_cause(stage.timeline.gaps, 0, stage.session.latest_ns)
    stage.window.recordings.open(str(file))
    view = stage.window.recording
    assert view is not None
    stage.wait(lambda: view.feed.done and stage.window.top.pill.word == "Recording", "the recording")
    expect(stage.window.recording is view, "the recording was not opened")
    session = view.feed.session
    recorded = idle_by_cause(session.devices[DEVICE].gaps, 0, session.latest_ns)
    for row in live:
        there = next((other.ns for other in recorded if other.cause == row.cause), 0)
        expect(there >= 0.9 * row.ns, f"of {row.ns} ns {row.cause} the recording has {there}")
    stage.picture("story-idle-recording")
    stage.window.recordings.close()


def room_for_one(key: Path) -> int:
    """Bytes that hold all of one worker's partition and an eighth of what another has beside it."""
    device = open_device(DEVICE)
    try:
        asked = plan_report(device, work_of(key), PipelineSettings(), 2).choices[0]
    finally:
        device.close()
    return asked.peak + (asked.total - asked.peak) // 8


def memory_settings(circuit: Circuit) -> dict[str, str]:
    return {
        "gpus.gpu_workers_per_device": "2",
        "pipeline.prestage": '"ahead"',
        "cpu.arena": f'"{room_for_one(circuit.key)}B"',
    }


IDLE_SETTINGS: Final = {
    "gpus.gpu_workers_per_device": "1",
    "pipeline.prestage": '"off"',
    "pipeline.evaluate": '"host"',
}


def _offered(stage: Stage) -> Finding | None:
    """The finding that is shown first, of those with a button."""
    found = [f for f in stage.session.findings.of(DEVICE) if f.remedies]
    return found[0] if found else None


def _offered_card(stage: Stage) -> tuple[Finding, Card]:
    stage.paint()
    finding = _offered(stage)
    assert finding is not None
    return finding, stage.window.live.findings.cards[finding.device, finding.kind]


def _share(stage: Stage, cause: str, proved: Proved) -> float:
    """Of the time from a job's first kernel to its last."""
    rows = idle_by_cause(stage.timeline.gaps, proved.start_ns, proved.end_ns)
    return sum(row.ns for row in rows if row.cause == cause) / (proved.end_ns - proved.start_ns)


def _is_marked(chart: Chart, mark: Mark) -> bool:
    """Whether its colour stands where its time is, along much of the chart's height."""
    area, image = chart.area(), chart.plot.grab().toImage()
    corner = chart.plot.inside().topLeft()
    x = round(corner.x() + area.x_of(mark.time_ns))
    accent = chart.scene.colours.accent
    found = sum(
        any(image.pixelColor(x + side, y).name() == accent for side in (-1, 0, 1))
        for y in range(round(corner.y()), round(corner.y() + area.height))
    )
    return found > 0.2 * area.height


def tell(story: str, app: QApplication, profile: str, pictures: Path | None) -> None:
    theme = Theme(app, ThemeChoice.DARK)
    with own_home() as home:
        circuit = Circuit.make(profile, home / "circuit")
        if story == "memory":
            with (
                environment(**{NO_PLAN: "1"}),
                Stage(circuit, memory_settings(circuit), theme, pictures) as stage,
            ):
                memory_story(stage)
        else:
            with Stage(circuit, IDLE_SETTINGS, theme, pictures) as stage:
                recorder = Recorder(home / "idle.cuzkrec", stage.address)
                try:
                    idle_story(stage)
                finally:
                    recorder.stop()
                watch_recording(stage, recorder.file)
    theme.close()


def make_folder(folder: Path) -> None:
    """For pictures, before anything is begun. Raises StoryError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoryError(f"{folder}: no folder for pictures: {(error.strerror or str(error)).lower()}") from None


def main() -> int:
    parser = argparse.ArgumentParser(description="Two stories of one device, told by the real window.")
    parser.add_argument("stories", nargs="*", choices=[*PROFILES, []], metavar="memory|idle", help="which; both")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="leave pictures there")
    parser.add_argument("--profile", metavar="PROFILE", default="", help=f"the circuit; {PROFILES}")
    args = parser.parse_args()
    try:
        if args.pictures is not None:
            make_folder(args.pictures)
    except StoryError as error:
        print(f"cuzk: error: {error}", file=sys.stderr)
        return 1
    app = QApplication(["cuzk"])
    for story in args.stories or PROFILES:
        print(f"story {story}", flush=True)
        try:
            tell(story, app, args.profile or PROFILES[story], args.pictures)
        except StoryError as error:
            print(f"cuzk: error: story {story}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

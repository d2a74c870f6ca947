"""More questions to a Recording, as in `views`: tf.data stages at their fullest, the code of a line. Pure."""

from __future__ import annotations

from lowtide.program import Source
from lowtide.record.types import Recording, Stage


def fullest_stages(recording: Recording) -> list[Stage]:
    """Each tf.data stage at the moment it held most, the fullest first."""
    most: dict[tuple[int, str, Source | None], Stage] = {}
    for stage in recording.stages:
        key = (stage.pipeline, stage.name, stage.source)
        if key not in most or stage.buffered_bytes >= most[key].buffered_bytes:
            most[key] = stage
    return sorted(most.values(), key=lambda stage: -stage.buffered_bytes)


def line_text(recording: Recording, source: Source | None) -> str:
    """The user's line as it was when it ran; "" where it was not kept."""
    lines = recording.sources.get(source.file, "").splitlines() if source else []
    return lines[source.line - 1].strip() if source and 0 < source.line <= len(lines) else ""

"""Draw docs/assets/overview.svg: the commands from text to the Hub, and the loss curve of a recorded quickstart.

python docs/assets/draw_overview.py [LOG.jsonl]

The numbers are in quickstart_log.json. LOG.jsonl, the `log.jsonl` of a pretraining folder, replaces them first.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NUMBERS = FOLDER / "quickstart_log.json"
STAGES = (  # title, files, command that makes the next one
    ("text", "books/*.txt", "tokenizer"),
    ("vocabulary", "tokenizer/", "corpus"),
    ("examples", "corpus/", "pretrain"),
    ("BERT", "model/", "finetune"),
    ("task model", "classifier/", "push"),
    ("Hub", "me/my-bert", None),
)
WIDTH, HEIGHT, BOX, GAP = 880, 290, 96, 55
LEFT, RIGHT, TOP, BOTTOM = 60, 850, 120, 250  # of the plot
INK, FAINT, BLUE, ORANGE = "#1f2933", "#9aa5b1", "#2563eb", "#d97706"


def record(log: Path) -> None:
    """Keep step and masked-language-model loss of every event."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    curves = {
        name: [[e["step"], round(e[key], 3)] for e in events if key in e]
        for name, key in (("training", "mlm_loss"), ("held-out", "eval_mlm_loss"))
    }
    NUMBERS.write_text(json.dumps(curves) + "\n", encoding="utf-8")


def text(
    x: float, y: float, content: str, size: int = 13, fill: str = INK, anchor: str = "middle", more: str = ""
) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" {more}>{content}</text>'


def flow() -> list[str]:
    parts = []
    for i, (title, files, command) in enumerate(STAGES):
        x = 14 + i * (BOX + GAP)
        parts += [
            f'<rect x="{x}" y="20" width="{BOX}" height="50" rx="8" fill="#eff6ff" stroke="{BLUE}"/>',
            text(x + BOX / 2, 41, title, 14, more='font-weight="600"'),
            text(x + BOX / 2, 59, files, 11, FAINT, more='font-family="monospace"'),
        ]
        if command:
            end = x + BOX + GAP
            parts += [
                f'<path d="M{x + BOX + 4} 45H{end - 9}m-7 -5 7 5 -7 5" fill="none" stroke="{INK}"/>',
                text(end - GAP / 2, 35, command, 10),
            ]
    return parts


def plot(curves: dict[str, list[list[float]]]) -> list[str]:
    steps = max(step for curve in curves.values() for step, _ in curve)
    losses = [loss for curve in curves.values() for _, loss in curve]
    low, high = int(min(losses)), int(max(losses)) + 1

    def at(step: float, loss: float) -> str:
        x = LEFT + (RIGHT - LEFT) * step / steps
        return f"{x:.1f},{BOTTOM - (BOTTOM - TOP) * (loss - low) / (high - low):.1f}"

    parts = [
        text(
            LEFT,
            TOP - 12,
            "masked-token loss while pretraining (quickstart: two CPU cores, minutes)",
            12,
            anchor="start",
        )
    ]
    for loss in range(low, high + 1):
        x, y = at(0, loss).split(",")
        parts += [
            f'<path d="M{LEFT} {y}H{RIGHT}" stroke="#e4e7eb"/>',
            text(LEFT - 10, float(y) + 4, str(loss), 11, FAINT),
        ]
    for step in range(0, steps + 1, 500):
        x = at(step, low).split(",")[0]
        parts.append(text(float(x), BOTTOM + 18, f"{step:,}", 11, FAINT))
    parts.append(text(RIGHT, BOTTOM + 32, "step", 11, FAINT, "end"))
    for (name, curve), colour in zip(curves.items(), (BLUE, ORANGE), strict=True):
        points = " ".join(at(*point) for point in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if name == "held-out":
            parts += ['<circle cx="{}" cy="{}" r="3.5" fill="{}"/>'.format(*at(*p).split(","), colour) for p in curve]
    parts += [
        text(RIGHT - 150, TOP + 12, "training", 12, BLUE, "start"),
        text(RIGHT - 80, TOP + 12, "held-out", 12, ORANGE, "start"),
    ]
    return parts


def main() -> None:
    if len(sys.argv) > 1:
        record(Path(sys.argv[1]))
    curves = json.loads(NUMBERS.read_text(encoding="utf-8"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif">'
        "<title>From text to the Hub, and the loss of a quickstart</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fff"/>'
    )
    (FOLDER / "overview.svg").write_text("\n".join([head, *flow(), *plot(curves), "</svg>"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

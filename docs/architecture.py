#!/usr/bin/env python3
"""Draws docs/architecture.svg: the rooms of the source, and the arrows that its #include lines make.

    architecture.py            writes the picture anew
    architecture.py --check    exit status 1 where the picture is not that of today's #include lines

A room is a folder of ROOMS. An arrow goes from a room to one whose header it includes. A header of include/ counts as that of
the room that implements it; headers of SEAM are shapes and contracts that every room may speak of, and make no arrow. An arrow
that points up is drawn in red. Standard library only.
"""
import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs/architecture.svg"

# From the top down: folder, what it is for, the rooms within it.
ROOMS = [
    ("server", "strings: HTTP, the APIs, the command line", [
        ("commands", "serve, chat, …"), ("endpoints", "routes, handlers"), ("page", "the web page"),
        ("requests", "life cycles"), ("process", "flags → engine"), ("observe", "metrics, spans"),
        ("dialects", "an API is a file"), ("api", "body → request"), ("formats", "calls, reasoning"),
        ("http", "connections")]),
    ("scheduler", "integers: which tokens of which requests come next", [
        ("", "scheduler.c, request.c: pure"), ("", "service.c: the engine thread"), ("", "record, replay, trace")]),
    ("engine", "tensors: KV cache, batch, forward pass", [
        ("models", "files → specs, weights"), ("text", "strings ↔ token ids"), ("ranks", "one model, many devices")]),
    ("kernels", "numbers: the phases of a layer", [
        ("ref", "what it means"), ("cpu", "fast, the same bits"), ("cuda", "a module, loaded")]),
    ("lib", "what other programs may take alone", [
        ("grammar", "schemas, grammars → masks"), ("jinja", "chat templates"), ("json", "a reader")]),
    ("base", "status, log, buffers, UTF-8, half floats, hash, time, CPUs", []),
]
NAMES = [name for name, _, _ in ROOMS]
SEAM = {"model.h", "comm.h", "plan.h", "request.h", "sampling.h", "kv_group.h", "filter.h"}
OWNER = {"backend.h": "kernels", "text.h": "engine"}  # where no .c has the name

FILL = {"server": "#ddf4ff", "scheduler": "#dafbe1", "engine": "#fff8c5", "kernels": "#ffe8d9", "lib": "#e6f7f4", "base": "#eaeef2", "include": "#f3e8ff"}
EDGE = {"server": "#54aeff", "scheduler": "#4ac26b", "engine": "#d4a72c", "kernels": "#fb8f44", "lib": "#2da79b", "base": "#8c959f", "include": "#a475f9"}
INK, SOFT, LINE, UP = "#1f2328", "#57606a", "#848d97", "#cf222e"
X, W, TOP, GAP, BAND = 64, 596, 24, 46, (706, 190)


# ---- arrows


def sources():
    out = {}
    for name in [*NAMES, "include"]:
        for path in sorted((ROOT / name).rglob("*")):
            if path.suffix in (".c", ".h", ".cu", ".cuh", ".cpp") and "emu" not in path.parts:
                out[path] = name
    return out


def includes(path):
    return [line.split("/")[-1] for line in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M)]


def owners(files):
    """{header of include/: the room that implements it}"""
    out = {}
    for path, room in files.items():
        if room == "include" and path.name not in SEAM:
            rooms = {r for p, r in files.items() if r != "include" and p.suffix == ".c" and p.stem == path.stem}
            out[path.name] = OWNER.get(path.name) or (rooms.pop() if len(rooms) == 1 else None)
    return out


def arrows(files):
    """{(room, room): headers}; headers of include/ are followed, since they are how one room speaks of another."""
    owner, places = owners(files), {}
    for path, room in files.items():
        places.setdefault(path.name, []).append((path, room))
    out = {}

    def follow(room, path, seen):
        for name in includes(path):
            found = places.get(name, [])
            if not found or any(p.parent == path.parent and r == room for p, r in found):
                continue  # of the system, of a library, or of the same folder
            near = {room: 0, "include": 1, "base": 2}  # several rooms may have a header of this name
            target, where = min(found, key=lambda f: near.get(f[1], 3))
            if where == "include":
                where = owner.get(name)
                if where == room and target not in seen:
                    follow(room, target, seen | {target})
            if where and where != room:
                out.setdefault((room, where), set()).add(name)

    for path, room in files.items():
        if room != "include":
            follow(room, path, set())
    return out


# ---- picture


def text(x, y, words, size=13, fill=INK, weight="", anchor="start"):
    more = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def box(x, y, w, h, name, radius=10, dashed=False, fill=None):
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return (f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="{radius}" fill="{fill or FILL[name]}" '
            f'stroke="{EDGE[name]}" stroke-width="1.5"{dash}/>')


def arrow(points, up=False):
    color = UP if up else LINE
    path = "M" + " L".join(f"{x},{y}" for x, y in points)
    return f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.8" marker-end="url(#{"up" if up else "down"})"/>'


def some(names, most=4):
    names = sorted(names)
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


def rows(inner):
    return -(-len(inner) // 5) or 1


def draw():
    files = sources()
    found, owner = arrows(files), owners(files)
    heights = [44 + 68 * rows(inner) if inner else 60 for _, _, inner in ROOMS]
    tops = [TOP + sum(heights[:i]) + GAP * i for i in range(len(ROOMS))]
    at = {name: (tops[i], heights[i]) for i, name in enumerate(NAMES)}
    bottom = tops[-1] + heights[-1]
    out = []
    for (name, purpose, inner), top, height in zip(ROOMS, tops, heights):
        out += [box(X, top, W, height, name), text(X + 16, top + 27, f"{name}/", 17, weight="600"),
                text(X + 132, top + 27, purpose, 13, SOFT)]
        a_row = -(-len(inner) // rows(inner))
        width = (W - 32 - 12 * (a_row - 1)) / max(a_row, 1)
        for i, (folder, told) in enumerate(inner):
            left, at_y = round(X + 16 + i % a_row * (width + 12)), top + 42 + 66 * (i // a_row)
            missing = folder and not (ROOT / name / folder).is_dir()
            out.append(box(left, at_y, round(width), 56, name, 7, missing, "#ffffff"))
            if folder:
                out += [text(left + 9, at_y + 23, f"{folder}/", 13, weight="600"), text(left + 9, at_y + 43, told, 11, SOFT)]
            else:
                out.append(text(left + 9, at_y + 33, told, 11, SOFT))
    # The seam: what each room shows to the others.
    x, w = BAND
    seam_end = at["kernels"][0] + at["kernels"][1]
    out += [box(x, TOP, w, seam_end - TOP, "include"), text(x + 16, TOP + 27, "include/", 17, weight="600"),
            text(x + 16, TOP + 46, "the seam, all of it", 13, SOFT)]
    lists = {name: sorted(h for h, r in owner.items() if r == name) for name in NAMES}
    shared = sorted(p.name for p, r in files.items() if r == "include" and p.name in SEAM)
    out += [text(x + 16, TOP + 70 + 15 * i, h, 12) for i, h in enumerate(shared)]
    for name in ("scheduler", "engine", "kernels"):
        top = at[name][0]
        out.append(f'<path d="M{X + W},{top + 56} L{x},{top + 56}" stroke="{EDGE[name]}" stroke-width="1.2" stroke-dasharray="2 3"/>')
        out += [text(x + 16, top + 22, f"of {name}", 11, EDGE["include"], "600")]
        out += [text(x + 16, top + 39 + 15 * i, h, 12) for i, h in enumerate(lists[name])]
    # bench speaks HTTP to a server, and shares nothing but base.
    top, height = at["base"]
    out += [box(x, top, w, height, "base", 10, not (ROOT / "bench").is_dir()), text(x + 16, top + 27, "bench/", 17, weight="600"),
            text(x + 16, top + 46, "quire-bench, a client", 12, SOFT), arrow([(x, top + height // 2), (X + W + 6, top + height // 2)])]
    # Arrows: to the room below; to base along the left; others along the right.
    lane = X + W + 18
    for (a, b), headers in sorted(found.items()):
        i, j = NAMES.index(a), NAMES.index(b)
        up, (top, height), (end, tall) = j < i, at[a], at[b]
        if j == i + 1:
            middle = X + W // 2
            out += [arrow([(middle, top + height), (middle, end - 6)]), text(middle + 10, top + height + 28, some(headers), 11, LINE)]
        elif up:
            middle = X + W // 2 - 60
            out += [arrow([(middle, top), (middle, end + tall + 6)], True),
                    text(middle - 10, top - 17, some(headers), 11, UP, anchor="end")]
        elif b == "base":
            side = X - 16 - 9 * (len(NAMES) - 2 - i)
            out.append(arrow([(X, top + 70), (side, top + 70), (side, end + 14 + 9 * i), (X - 6, end + 14 + 9 * i)]))
        else:
            out += [arrow([(X + W, top + 76), (lane, top + 76), (lane, end + 30), (X + W + 6, end + 30)])]
            lane += 9
    size = f'{x + w + 24}', f'{bottom + 24}'
    marks = "".join(f'<marker id="{i}" viewBox="0 0 10 10" refX="6" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
                    f'<path d="M0,0 L10,5 L0,10 z" fill="{c}"/></marker>' for i, c in (("down", LINE), ("up", UP)))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}" '
        'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img">',
        "<title>Rooms of the source and what they include</title>", f"<defs>{marks}</defs>", *out, "</svg>"]) + "\n"


def main(words):
    if words == ["--check"]:
        if not OUT.exists() or OUT.read_text() != draw():
            print("docs/architecture.svg is not today's: run docs/architecture.py")
            return 1
    elif words:
        sys.exit(__doc__)
    else:
        OUT.write_text(draw())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

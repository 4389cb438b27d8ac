"""How the report looks, light and dark, on screen and on paper."""

from __future__ import annotations

_LIGHT = (
    *("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#a16207"),
    *("#0e7490", "#be185d", "#4d7c0f", "#475569", "#7f1d1d"),
)
_DARK = (
    *("#fb923c", "#60a5fa", "#4ade80", "#c084fc", "#facc15"),
    *("#22d3ee", "#f472b6", "#a3e635", "#94a3b8", "#fca5a5"),
)


def _colours(colours: tuple[str, ...]) -> str:
    return " ".join(f"--s{number}: {colour};" for number, colour in enumerate(colours))


STYLE = f"""
:root {{
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #17202b; --soft: #5b6776; --line: #dde2e8;
  --best: #dcf5e3; --best-text: #0f5f2e; --accent: #1d4ed8; --track: #eef1f4;
  {_colours(_LIGHT)}
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --page: #10151c; --card: #19212b; --text: #e6ebf1; --soft: #9aa7b6; --line: #2d3844;
    --best: #143b25; --best-text: #a7f3c0; --accent: #8ab4ff; --track: #232d38;
    {_colours(_DARK)}
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}}
main {{ max-width: 1240px; margin: 0 auto; padding: 40px 24px 64px; }}
h1 {{ font-size: 2rem; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }}
h2 {{ font-size: 1.3rem; margin: 0 0 4px; }}
h3 {{ font-size: .95rem; margin: 0 0 6px; font-weight: 600; }}
p {{ margin: 0 0 12px; max-width: 92ch; }}
.over {{
  color: var(--accent); font-weight: 600; margin-bottom: 4px;
  font-size: .85rem; text-transform: uppercase; letter-spacing: .06em;
}}
.lead {{ font-size: 1.15rem; }}
.soft {{ color: var(--soft); font-size: .92rem; }}
section, .card {{
  background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; padding: 24px; margin-top: 24px;
}}
.tiles {{
  display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 16px; margin-top: 24px;
}}
.tiles .card {{ margin: 0; padding: 16px 20px; }}
.tiles b {{ display: block; font-size: 1.7rem; line-height: 1.25; font-variant-numeric: tabular-nums; }}
.scroll {{ overflow-x: auto; margin: 16px 0; }}
table {{ border-collapse: collapse; width: 100%; font-size: .86rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 6px 7px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }}
th {{ font-weight: 600; color: var(--soft); }}
th[scope=row] {{
  text-align: left; color: var(--text); font-weight: 500;
  position: sticky; left: 0; background: var(--card);
}}
th[scope=colgroup] {{ text-align: center; color: var(--text); }}
.first {{ border-left: 1px solid var(--line); }}
th small {{ font-weight: 400; color: var(--soft); }}
td.best {{ background: var(--best); color: var(--best-text); font-weight: 700; }}
.hidden {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }}
.key {{
  display: inline-block; width: 12px; height: 12px; margin-right: 8px;
  vertical-align: -1px; overflow: visible;
}}
.plots {{
  display: grid; grid-template-columns: repeat(auto-fit, minmax(250px, 1fr)); gap: 24px; margin-top: 16px;
}}
figure {{ margin: 0; }}
figcaption {{ font-size: .9rem; font-weight: 600; margin-bottom: 4px; }}
svg {{ display: block; width: 100%; height: auto; overflow: visible; }}
svg text {{ font-size: 11px; fill: var(--soft); stroke: none; font-family: inherit; }}
svg .tick, svg .value, svg text.limit {{ text-anchor: end; }}
svg .load {{ text-anchor: middle; }}
svg .name, svg .value {{ fill: var(--text); font-size: 12px; }}
svg .grid {{ stroke: var(--line); stroke-width: 1; }}
svg line.limit {{ stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 5 4; }}
svg polyline {{ fill: none; stroke-width: 2; }}
svg rect.track {{ fill: var(--track); }}
{" ".join(f".s{n} {{ stroke: var(--s{n}); fill: var(--s{n}); }}" for n in range(len(_LIGHT)))}
svg rect {{ stroke: none; }}
.note {{ margin-top: 12px; }}
details {{ margin-top: 12px; }}
summary {{ cursor: pointer; color: var(--accent); font-size: .92rem; }}
pre {{
  background: var(--track); border-radius: 8px; padding: 12px 16px; font-size: .85rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
}}
li {{ margin-bottom: 6px; max-width: 92ch; }}
@media print {{
  body {{ background: #ffffff; }}
  section {{ break-inside: avoid; }}
}}
"""
"""The style sheet."""

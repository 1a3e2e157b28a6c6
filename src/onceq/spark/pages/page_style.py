"""The style of a page: its colours, in light, in dark and on paper, and its layout.

Used by `onceq.spark.pages.html`, and by `onceq.spark.pages.figures`: figures are painted in these
variables.
"""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

_LIGHT: Final = """
--back:#fff; --ink:#1c2430; --soft:#5a6675; --grid:#d9dee5; --panel:#f5f7fa; --bar:#d5e4f7;
--blue:#1f6fc4; --green:#2b8a4b; --orange:#c9690a; --red:#c4302b; --violet:#7a4cc2; --grey:#8a94a1;
"""
_DARK: Final = """
--back:#14181e; --ink:#e6eaf0; --soft:#a3adba; --grid:#343c47; --panel:#1d232b; --bar:#24405f;
--blue:#6fb1f5; --green:#6cc788; --orange:#f2a65a; --red:#f47c76; --violet:#b79cf0; --grey:#7f8a98;
"""
STYLE: Final = f"""
:root {{ color-scheme:light dark; {_LIGHT} }}
@media screen and (prefers-color-scheme:dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing:border-box }}
body {{
  margin:0 auto; max-width:68rem; padding:1.5rem 1.25rem 4rem;
  background:var(--back); color:var(--ink);
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
}}
h1 {{ font-size:1.75rem; line-height:1.2; margin:0 }}
h2 {{
  font-size:1.25rem; margin:2.5rem 0 .75rem; padding-top:.75rem; border-top:1px solid var(--grid);
}}
h3 {{ font-size:1rem; margin:1.5rem 0 .25rem }}
p {{ margin:.5rem 0; max-width:46rem }}
.lead, small, caption, figcaption {{ color:var(--soft) }}
.notice {{ border-left:4px solid var(--orange); background:var(--panel); padding:.6rem .9rem }}
.tiles {{
  display:grid; grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr)); gap:.75rem;
  margin:1rem 0;
}}
.tiles div {{
  display:flex; flex-direction:column-reverse; justify-content:flex-end;
  background:var(--panel); border-radius:6px; padding:.7rem .9rem;
}}
.tiles dt {{ color:var(--soft); font-size:.85rem }}
.tiles dd {{ margin:0; font-size:1.4rem; font-weight:600; overflow-wrap:anywhere }}
.wide {{ overflow-x:auto; margin:.75rem 0 }}
table {{
  border-collapse:collapse; min-width:min(100%,26rem); font-size:.9rem;
  font-variant-numeric:tabular-nums;
}}
caption {{ text-align:left; padding-bottom:.35rem }}
th, td {{
  text-align:left; vertical-align:top; padding:.3rem .75rem; max-width:26rem;
  border-bottom:1px solid var(--grid); overflow-wrap:anywhere;
}}
th {{ vertical-align:bottom; font-weight:600; overflow-wrap:normal }}
th small {{ display:block; font-weight:400 }}
td:not(.number) {{ min-width:5.5rem }}
td.roomy {{ min-width:15rem }}
.number {{ text-align:right; white-space:nowrap }}
td[style] {{
  background:linear-gradient(to left,var(--bar) var(--share),transparent var(--share));
}}
figure {{ margin:1rem 0 1.5rem }}
figure svg {{ display:block; width:100%; min-width:36rem; height:auto }}
figure text {{ font-family:inherit !important }}
.keys {{
  list-style:none; display:flex; flex-wrap:wrap; gap:.2rem 1.1rem; margin:.25rem 0; padding:0;
  font-size:.85rem;
}}
.keys li::before {{
  content:""; display:inline-block; width:1.1rem; height:.7rem; margin-right:.4rem;
  border-radius:2px; background:var(--paint);
}}
.keys li.line::before {{
  height:0; vertical-align:.25rem; border-top:3px var(--line) var(--paint); border-radius:0;
  background:none;
}}
.keys li.mark::before {{
  height:.8rem; width:.5rem; border-left:2px dashed var(--red); border-radius:0; background:none;
}}
@media print {{
  body {{ max-width:none; padding:0; font-size:11px }}
  figure, tr, .tiles div {{ break-inside:avoid }}
  h2, h3 {{ break-after:avoid }}
  .wide {{ overflow:visible }}
  figure svg {{ min-width:0 }}
  td[style], .tiles div, .keys li::before {{ print-color-adjust:exact }}
}}
"""

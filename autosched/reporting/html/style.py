"""The style of a report: light and dark, from 360 pixels to wide. Colours for the colour-blind, too.

Source of the colours: Okabe and Ito, "Color universal design" (2008).
"""

from __future__ import annotations

STYLE = """
:root{
  color-scheme:light dark;--paper:#fcfcfa;--ink:#1b1d1f;--muted:#5f666d;--rule:#dfdfda;
  --soft:#efefeb;--accent:#0072b2;--warn:#d55e00;--library:#9a6700;--quiet:#b6bcc2;--dots:#8d979f}
@media (prefers-color-scheme:dark){
  :root{
    --paper:#15171a;--ink:#e8e8e4;--muted:#9da5ad;--rule:#32373c;--soft:#22262a;--accent:#56b4e9;
    --warn:#ff8a3d;--library:#e6b422;--quiet:#596169;--dots:#77818a}
}
*{box-sizing:border-box}
html{
  background:var(--paper);color:var(--ink);
  font:16px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
  font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
body{max-width:1220px;margin:0 auto;padding:28px 20px 60px}
h1,h2,h3{line-height:1.2;margin:0;font-weight:650;overflow-wrap:anywhere;letter-spacing:-.005em}
h1{font-size:1.75rem}
h2{font-size:1.35rem}
h3{font-size:.95rem}
p{margin:.3em 0}
small,.sub,figcaption,.note{color:var(--muted)}
small{font-size:.8125rem}
.sub{margin:.25rem 0 0;overflow-wrap:anywhere}
a{color:var(--accent);text-underline-offset:.15em;text-decoration-thickness:1px}
section{border-top:2px solid var(--ink);padding-top:14px;margin-top:44px}
section.only{border:0;margin-top:0;padding-top:0}
.key{
  display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,165px),1fr));gap:14px 28px;
  margin:18px 0 8px}
.key div{border-top:1px solid var(--rule);padding-top:8px}
.key b{display:block;font-size:1.7rem;font-weight:600;line-height:1.15;letter-spacing:-.015em}
.key span{display:block;font-size:.8125rem;color:var(--muted)}
.sure{max-width:72ch}
.grid{columns:3 330px;column-gap:36px;margin-top:26px}
figure{margin:0 0 30px;min-width:0;break-inside:avoid}
figcaption{font-size:.8125rem;line-height:1.4;margin-top:6px}
figure h3{margin-bottom:8px}
svg.plot{display:block;width:100%;height:auto;max-width:460px;overflow:visible}
svg text{font-size:11px;fill:var(--ink)}
svg .tick,svg .name{fill:var(--muted)}
svg .strong{font-weight:600}
svg path,svg line{fill:none;stroke:var(--ink);stroke-width:1}
svg .grid,svg .axis-line{stroke:var(--rule)}
svg .axis{stroke:var(--quiet)}
svg .trials{stroke:var(--dots);stroke-width:3;stroke-linecap:round;opacity:.55}
svg .failures{stroke:var(--warn);stroke-width:1}
svg .best,svg .round{stroke:var(--accent);stroke-width:2}
svg .roof{stroke:var(--ink);stroke-width:1.5}
svg .library{stroke:var(--library);stroke-width:1.2}
svg .dashed{stroke-dasharray:5 4}
svg .library-text{fill:var(--library)}
svg .best-dot{fill:var(--accent)}
svg .library-dot{fill:var(--paper);stroke:var(--library);stroke-width:2}
svg .hollow{fill:var(--paper);stroke:var(--accent);stroke-width:2}
.strip{
  display:grid;grid-template-columns:minmax(84px,40%) 1fr 76px;gap:10px;align-items:center;
  min-height:22px;font-size:.8125rem}
.what{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.figure{text-align:right;white-space:pre}
.track{
  position:relative;height:16px;border-radius:2px;
  background:linear-gradient(var(--rule),var(--rule)) center/100% 1pxno-repeat}
.ticks{background:none}
.ticks i{
  position:absolute;transform:translateX(-50%);font-style:normal;color:var(--muted);
  font-size:.75rem;line-height:16px}
.bar{position:absolute;top:5px;height:6px;background:var(--accent);opacity:.35}
.bar.passed{top:3px;height:10px;background:var(--quiet);opacity:1}
.bar.stopped{top:3px;height:10px;background:var(--accent);opacity:.55}
.bar.failed{top:3px;height:10px;background:var(--warn);opacity:1}
.bar.library{background:var(--library)}
.mark{position:absolute;top:3px;width:10px;height:10px;margin-left:-5px;border-radius:50%;background:var(--ink)}
.mark.win{background:var(--accent)}
.mark.tie{background:var(--paper);border:2px solid var(--ink)}
.mark.library{background:var(--library);border-radius:0}
.mark.median{width:2px;margin-left:-1px;border-radius:0;background:var(--dots)}
.mark.order{width:2px;height:5px;margin-left:-1px;border-radius:0;background:var(--muted)}
.mark.upper{top:0}
.mark.lower{top:11px}
.mark.one{top:0;height:16px;width:1px;margin:0;border-radius:0;background:var(--accent)}
.group{margin-top:10px;font-size:.8125rem}
.group:first-child{margin-top:0}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th,td{text-align:left;padding:7px 12px 7px 0;border-bottom:1px solid var(--rule);vertical-align:middle}
th{font-weight:600;color:var(--muted);font-size:.8125rem;white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap}
td.name{overflow-wrap:anywhere;min-width:150px}
th button{all:unset;cursor:pointer;font:inherit;color:inherit}
th button:focus-visible{outline:2px solid var(--accent)}
th[aria-sort] button{color:var(--ink)}
th[aria-sort=ascending] button::after{content:" ↑"}
th[aria-sort=descending] button::after{content:" ↓"}
td .track{display:block;width:120px;max-width:24vw}
.spark{display:block;width:96px;height:22px}
.facts td:first-child{color:var(--muted);white-space:nowrap;width:1%}
.facts td{overflow-wrap:anywhere;padding:4px 14px 4px 0}
pre{
  background:var(--soft);padding:10px 12px;border-radius:4px;
  font:.8125rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;
  overflow-wrap:anywhere;margin:8px 0}
details{margin-top:16px}
summary{cursor:pointer;color:var(--muted);font-size:.875rem}
.reasons{font-size:.8125rem;margin:8px 0 0;padding-left:1.1em}
.reasons li{overflow-wrap:anywhere}
footer{margin-top:48px;border-top:1px solid var(--rule);padding-top:10px;color:var(--muted);font-size:.8125rem}
@media (max-width:820px){
  .wide{display:none}
}
@media (max-width:560px){
  body{padding:18px 14px 40px}
  h1{font-size:1.4rem}
  h2{font-size:1.15rem}
  .medium{display:none}
  .key{grid-template-columns:1fr 1fr;gap:12px 18px}
  .key b{font-size:1.35rem}
  th,td{padding-right:8px}
  td.name{min-width:0}
}
@media print{
  section{break-inside:avoid}
  details{display:block}
}
"""

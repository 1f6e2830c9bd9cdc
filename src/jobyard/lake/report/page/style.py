"""How the page looks, and the little script that shows numbers under the pointer.

The page allows exactly this style and this script, by their hashes, and nothing else: so no element
has a style of its own, and drawings are styled by classes. Contrast of text is at least 4.5 to 1,
of lines 3 to 1, in both themes; colours keep apart for people who see fewer of them, and lines
differ in their dashes too.
"""

import base64
import hashlib
from typing import Final

_THEME_LIGHT: Final = """
  --page:#f6f5f1; --sheet:#ffffff; --ink:#1d2126; --soft:#565d66; --rule:#dedbd3; --grid:#e9e6df;
  --base:#a9a69d;
  --s1:#1c6aab; --s2:#bf4a0c; --s3:#0b7a5f; --s4:#8442a0; --s5:#8a6a00; --s6:#2584a0;
  --s7:#767c85; --accent:#1c6aab; --bad:#b3360f; --good:#0b7a5f; --rail:#eceae4; --heat:28,106,171;
  color-scheme:light;"""
_THEME_DARK: Final = """
  --page:#121518; --sheet:#1a1e22; --ink:#e8e6e1; --soft:#a4abb3; --rule:#30363c; --grid:#282d33;
  --base:#5d656d;
  --s1:#64b1ee; --s2:#f2935c; --s3:#4fc7a0; --s4:#cf9bec; --s5:#dfc05a; --s6:#86d6e6;
  --s7:#8d959e; --accent:#7cbdf2; --bad:#ff9a73; --good:#62d2ad; --rail:#2a3036; --heat:100,177,238;
  color-scheme:dark;"""

_STYLE: Final = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,
  "Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
.wrap{max-width:1180px;margin:0 auto;padding:0 32px}
a{color:var(--accent)}
:focus-visible{outline:3px solid var(--accent);outline-offset:3px;border-radius:3px}
.skip{position:absolute;left:-999px}
.skip:focus{left:16px;top:16px;background:var(--sheet);padding:8px 14px;z-index:9}
bdi{overflow-wrap:anywhere}
.name,.clip{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden}
header{padding:52px 0 24px}
.brand{display:flex;align-items:center;gap:10px;margin:0 0 18px;color:var(--soft);font-size:14px;
  letter-spacing:.02em}
.brand svg{width:22px;height:22px;flex:none}
.brand b{color:var(--ink);font-weight:650}
h1{font-size:clamp(28px,4.6vw,46px);line-height:1.12;letter-spacing:-.022em;font-weight:640;margin:0;
  text-wrap:balance}
.facts{display:flex;flex-wrap:wrap;gap:6px 28px;margin:18px 0 0;color:var(--soft);font-size:14px}
.facts div{display:flex;gap:7px;min-width:0}
.facts dt::after{content:":"}
.facts dd{margin:0;color:var(--ink);min-width:0;overflow-wrap:anywhere}
nav{position:sticky;top:0;z-index:3;background:var(--page);border-bottom:1px solid var(--rule)}
nav ul{display:flex;gap:2px;margin:0 -10px;padding:0;list-style:none;overflow-x:auto;
  scrollbar-width:none}
nav a{display:block;padding:12px 10px;color:var(--soft);text-decoration:none;font-size:14px;
  white-space:nowrap}
nav a:hover{color:var(--ink);text-decoration:underline;text-underline-offset:5px}
.tiles{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:1px;margin:28px 0 0;padding:0;
  background:var(--rule);border:1px solid var(--rule);border-radius:14px;overflow:hidden}
.tile{background:var(--sheet);padding:18px 20px 16px;display:flex;flex-direction:column;min-width:0}
.tile dt{color:var(--soft);font-size:14px}
.tile .big{margin:2px 0 0;font-size:30px;line-height:1.2;font-weight:620;letter-spacing:-.02em}
.tile .big.bad{color:var(--bad)}
.tile .sub{margin:4px 0 0;color:var(--soft);font-size:13px;line-height:1.4;overflow-wrap:anywhere}
.tile .sub .name{display:inline}
.tile dd{margin:0}
.tile .trend{margin-top:auto;padding-top:14px}
main>section{background:var(--sheet);border:1px solid var(--rule);border-radius:14px;
  margin:28px 0;padding:30px 32px 32px;scroll-margin-top:64px}
h2{font-size:24px;letter-spacing:-.014em;line-height:1.25;font-weight:640;margin:0 0 6px}
.lead{margin:0 0 8px;color:var(--soft);max-width:74ch}
.lead .name{display:inline;color:var(--ink);font-weight:550}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(430px,100%),1fr));
  gap:12px 40px}
figure{margin:24px 0 0;min-width:0}
figcaption{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 12px;margin:0 0 6px}
h3{font-size:16px;font-weight:620;margin:0;line-height:1.4}
figcaption p{margin:0;color:var(--soft);font-size:13px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 8px;padding:0;list-style:none;
  font-size:13px;color:var(--soft)}
.legend li{display:flex;align-items:center;gap:7px;min-width:0;max-width:100%}
.legend svg{flex:none}
.legend .name{-webkit-line-clamp:1;max-width:36ch}
.chart{display:grid;grid-template-columns:60px minmax(0,1fr);position:relative}
.chart svg{display:block}
.chart text{fill:var(--soft);font-size:12px}
.shapes,.field{overflow:visible}
.grid{stroke:var(--grid);stroke-width:1;vector-effect:non-scaling-stroke}
.base{stroke:var(--base);stroke-width:1}
.line,.dot,.range{fill:none;vector-effect:non-scaling-stroke;stroke:var(--c);stroke-linejoin:round}
.line{stroke-width:2;stroke-linecap:round}
.dot{stroke-width:7;stroke-linecap:round}
.range{stroke-width:2}
.fill{fill:var(--c);fill-opacity:.14}
.solid{fill:var(--c)}
.layer{fill:var(--c)}
.layer.s7{fill-opacity:.3}
.legend .line{stroke-width:4}
.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}.s4{--c:var(--s4)}.s5{--c:var(--s5)}
.s6{--c:var(--s6)}.s7{--c:var(--s7)}
.d2{stroke-dasharray:7 5}.d3{stroke-dasharray:2 5}.thin{stroke-width:1.5}
.legend .d2,.legend .d3,.legend .solo{stroke-width:2.5}
.band{fill:var(--ink);fill-opacity:0}
.band.on{fill-opacity:.09}
.tip{position:absolute;z-index:4;pointer-events:none;background:var(--ink);color:var(--page);
  border-radius:7px;padding:7px 11px;font-size:12.5px;line-height:1.5;white-space:pre-line;
  max-width:280px;overflow-wrap:anywhere;top:8px}
.tables{margin-top:18px}
.scroll{overflow-x:auto}
table{border-collapse:separate;border-spacing:0;width:100%;table-layout:fixed;font-size:14px;line-height:20px}
caption,.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
  white-space:nowrap}
th,td{padding:8px 10px;border-bottom:1px solid var(--rule);text-align:right;vertical-align:middle;
  font-weight:400}
th:first-child,td:first-child{padding-left:0}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--soft);font-size:13px;vertical-align:bottom;line-height:1.3}
.name,th.name,td.name,th.text,td.text,th.time,td.time,th.wide,th.draw,td.draw{text-align:left}
th.name,td.name{display:table-cell;overflow:visible}
td.text,th.wide{overflow-wrap:anywhere}
td.num,td.time,th.time{white-space:nowrap}
thead th{white-space:normal}
col.name{width:22%}col.time{width:150px}col.draw{width:160px}col.text{width:14%}col.wide{width:31%}
col.small{width:70px}
.of7{min-width:640px}.of8{min-width:720px}.of9{min-width:800px}.of10{min-width:880px}
.of5,.of6{min-width:520px}.of11,.of12{min-width:960px}.roomy{min-width:900px}
.spark,.bar,.ranges,.heat{display:block;width:100%;height:26px;overflow:visible}
.heat{shape-rendering:crispEdges}
.bar{height:10px}.rail{fill:var(--rail)}
.spark .line{stroke-width:1.4}
.tile .spark .line{stroke-width:1.6}
.rows{display:grid;grid-template-columns:minmax(0,210px) minmax(0,1fr) auto;gap:5px 16px;
  align-items:center;font-size:14px;grid-auto-flow:row dense}
.rows>.name{grid-column:1}.rows>.value{grid-column:3}.rows>.draw{grid-column:2}
.rows .value{color:var(--soft);text-align:right;white-space:nowrap}
.rows .scale{grid-column:2;height:20px}
.rows .scale text{fill:var(--soft);font-size:12px}
.ranges{height:30px}
.h0{fill:var(--rail)}
.h1{fill:rgba(var(--heat),.16)}.h2{fill:rgba(var(--heat),.3)}.h3{fill:rgba(var(--heat),.46)}
.h4{fill:rgba(var(--heat),.64)}.h5{fill:rgba(var(--heat),.82)}.h6{fill:rgb(var(--heat))}
.bad{color:var(--bad);font-weight:600}
.quiet,.note{color:var(--soft)}
.note{font-size:13px;margin:8px 0 0}
.under{display:block;color:var(--soft);font-size:13px;margin-top:2px}
.under.clip{display:-webkit-box}
details{margin-top:2px}
summary{cursor:pointer;padding:10px 0;color:var(--accent);font-size:14px;width:fit-content}
.search{display:block;width:min(340px,100%);margin:4px 0 10px;padding:9px 12px;font:inherit;
  font-size:14px;color:var(--ink);background:var(--page);border:1px solid var(--base);
  border-radius:8px}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
pre{background:var(--page);border:1px solid var(--rule);border-radius:8px;padding:14px 16px;
  overflow-x:auto;margin:14px 0}
.none{margin:18px 0 0;padding:18px 20px;border:1px dashed var(--base);border-radius:10px;
  color:var(--soft)}
footer{color:var(--soft);font-size:14px;padding:4px 0 60px}
footer h2{font-size:17px;color:var(--ink)}
footer dl{display:grid;grid-template-columns:minmax(0,10rem) minmax(0,1fr);gap:8px 20px;
  margin:12px 0}
footer dt{color:var(--ink)}footer dd{margin:0;max-width:80ch}
@media (max-width:900px){.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media (max-width:640px){
 .wrap{padding:0 16px}header{padding:30px 0 18px}
 main>section{padding:22px 16px 22px;margin:16px -4px;border-radius:12px}
 .tile{padding:14px 14px 12px}.tile .big{font-size:24px}
 .chart{grid-template-columns:54px minmax(0,1fr)}
 .values{margin-left:-6px}
 .minor{display:none}
 tbody th:not(.wide){position:sticky;left:0;background:var(--sheet)}
 col.wide{width:230px}col.text{width:170px}.roomy{min-width:1020px}
 .of8 col.text,.of9 col.text{width:130px}
 h2{font-size:21px}
 .rows{grid-template-columns:minmax(0,1fr) auto}
 .rows>.value{grid-column:2}.rows>.draw{grid-column:1/3;margin-bottom:8px}
 .rows .scale{grid-column:1/3}
 footer dl{grid-template-columns:1fr;gap:2px}footer dd{margin-bottom:8px}
 th.name,td.name{min-width:130px}col.name{width:150px}
}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
"""
_PRINT: Final = """
@media print{
 @page{size:A4;margin:14mm 13mm}
 body{background:#fff;font-size:11px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
 .wrap{max-width:none;padding:0}header{padding:0 0 6px}h1{font-size:30px}
 nav,.skip,.search,summary,.tip{display:none}
 main>section{break-before:page;border:0;padding:0;margin:0;border-radius:0}
 main>section.headline{break-before:auto}
 .tiles{grid-template-columns:repeat(4,minmax(0,1fr))}.tile .big{font-size:20px}
 .tile{padding:10px 12px}
 .plots{grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 20px}.minor{display:none}
 figure,tr,.tile,h2,.lead{break-inside:avoid}h2,h3,figcaption{break-after:avoid}
 thead{display:table-header-group}
 table,.of5,.of6,.of7,.of8,.of9,.of10,.of11,.of12,.roomy{min-width:0;font-size:9.5px;line-height:13px}
 .scroll{overflow:visible}th,td{padding:3px 5px}thead th{font-size:9px}
 col.time{width:100px}col.draw{width:90px}
 td.num,td.time{white-space:normal}
 details::details-content{content-visibility:visible;display:block;height:auto;opacity:1}
 .name,.clip{-webkit-line-clamp:none}
 footer{break-before:auto;padding:14px 0 0}
}
"""

STYLE: Final = (
    f":root{{{_THEME_LIGHT}}}\n@media (prefers-color-scheme:dark){{:root{{{_THEME_DARK}}}}}\n"
    f"@media print{{:root{{{_THEME_LIGHT} --page:#fff;}}}}\n{_STYLE}{_PRINT}"
)

# Nothing depends on it. Titles of shapes become a box beside the pointer, tables can be searched,
# and tables are open in print where the browser does not know `::details-content`.
SCRIPT: Final = """
"use strict";
for (const chart of document.querySelectorAll(".chart,.draw")) {
  const words = new Map();
  for (const title of chart.querySelectorAll("rect>title")) {
    words.set(title.parentNode, title.textContent);
    title.remove();
  }
  if (!words.size) continue;
  let tip = null, last = null;
  const leave = () => {
    if (last) last.classList.remove("on");
    if (tip) tip.remove();
    last = tip = null;
  };
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("pointermove", event => {
    const text = words.get(event.target);
    if (!text) return leave();
    if (event.target === last) return;
    leave();
    last = event.target;
    last.classList.add("on");
    tip = document.createElement("div");
    tip.className = "tip";
    tip.textContent = text;
    chart.style.position = "relative";
    chart.append(tip);
    const box = chart.getBoundingClientRect(), band = last.getBoundingClientRect();
    const right = band.right - box.left + 10;
    const fits = right + tip.offsetWidth < box.width;
    tip.style.left = Math.max(0, fits ? right : band.left - box.left - 10 - tip.offsetWidth) + "px";
  });
}
for (const part of document.querySelectorAll("details[data-search]")) {
  const field = document.createElement("input");
  field.type = "search";
  field.className = "search";
  field.placeholder = "Search these rows";
  field.setAttribute("aria-label", "Search these rows");
  part.querySelector("summary").after(field);
  const rows = [...part.querySelectorAll("tbody tr")];
  const texts = rows.map(row => row.textContent.toLowerCase());
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    rows.forEach((row, at) => { row.hidden = !texts[at].includes(wanted); });
  });
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
});
addEventListener("afterprint", () => { for (const part of closed) part.open = false; });
"""


def policy() -> str:
    """Return the content security policy of the page."""
    return (
        f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"

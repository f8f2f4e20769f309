// Draws each diagram in the colors of the page, and again if the reader changes the colors.
const SMALLEST = 0.55; // A diagram that is wider than the page is scaled to this share at most, and then scrolls sideways.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const diagrams = [...document.querySelectorAll("pre.mermaid")];
// Mermaid reads labels as Markdown, in which __init__ is bold. As entities, the characters are text.
const plain = (label) => label.replace(/[*_]/g, (one) => `#${one.charCodeAt(0)};`);
// On a phone, a diagram from left to right is drawn from top to bottom.
const turned = (text) => (window.innerWidth < 600 ? text.replace(/^(\s*flowchart )LR/, "$1TD") : text);
const code = diagrams.map((one) => turned(one.textContent.replace(/"[^"]*"/g, plain)));

async function draw() {
  const chosen = document.body.dataset.theme; // of Furo: light, dark or auto
  const theme = chosen === "dark" || (chosen !== "light" && dark.matches) ? "dark" : "default";
  const themeVariables = { edgeLabelBackground: getComputedStyle(document.body).backgroundColor };
  mermaid.initialize({ startOnLoad: false, theme, themeVariables, flowchart: { useMaxWidth: false } });
  for (const [index, one] of diagrams.entries()) {
    one.innerHTML = (await mermaid.render(`diagram-${index}`, code[index])).svg;
    const svg = one.querySelector("svg");
    const width = svg.viewBox.baseVal.width;
    svg.removeAttribute("height");
    Object.assign(svg.style, { width: "100%", maxWidth: `${width}px`, minWidth: `${SMALLEST * width}px` });
  }
}

let drawing = draw();
const again = () => (drawing = drawing.then(draw));
dark.addEventListener("change", again);
new MutationObserver(again).observe(document.body, { attributeFilter: ["data-theme"] });

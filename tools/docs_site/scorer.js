// Ranks the results of the search. A page whose title contains the words comes first, and pages that a reader acts on come
// before reference, internals and the changelog. Without it, all pages with a word in some heading have the same score.
var Scorer = (() => {
  const weights = [
    [/^docs\/(start|guides)\//, 2],
    [/^docs\/internals\//, 0.5],
    [/^(CHANGELOG|reference\/refusals)$/, 0.2],
    [/^reference\//, 0.7], // generated: every name of the code is a heading
  ];
  const query = new URLSearchParams(window.location.search).get("q") ?? "";
  const words = query.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? [];
  const stems = words.map((word) => word.replace(/(ing|es|ed|s|e)$/, ""));
  const share = (title) => stems.filter((stem) => title.toLowerCase().includes(stem)).length / Math.max(stems.length, 1);
  const score = ([page, title, , , score]) =>
    (score + 30 * share(title.split(" > ")[0])) * (weights.find(([pages]) => pages.test(page)) ?? [null, 1])[1];
  const scores = { title: 15, partialTitle: 7, term: 5, partialTerm: 2 }; // the defaults of Sphinx
  return { score, objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0, ...scores };
})();

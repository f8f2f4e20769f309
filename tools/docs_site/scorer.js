// Ranks the results of the search: pages that a reader acts on come before reference, internals and the changelog.
// Without it, a long page that contains every word comes first.
const WEIGHTS = [
  [/^docs\/(start|guides)\//, 2],
  [/^docs\/internals\//, 0.5],
  [/^(CHANGELOG|reference\/refusals)$/, 0.2],
  [/^reference\//, 0.7], // generated: every name of the code is a heading
];
var Scorer = {
  score: ([page, , , , score]) => score * (WEIGHTS.find(([pages]) => pages.test(page)) ?? [null, 1])[1],
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

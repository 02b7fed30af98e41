// Guides come before results, the changelog and the Python API, which name every word once.
var Scorer = {
  score: ([page, , , , score]) => score + (/^(guides|start|troubleshooting)/.test(page) ? 20 : /^(results|changelog|contributing|benchmarks|reference.python)/.test(page) ? -20 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

// The page of one rule: its chart, its text, its keys, what another limit would do, and its changes.
import { optional, request } from './api.js';
import { Chart } from './chart.js';
import { ago, at, badge, copyButton, keyed, list, make, number, rate, setHidden, setText, sum } from './dom.js';
import { keyForm, showRows } from './keys.js';
import { showChanges } from './changes.js';
import { showState } from './state.js';
import { explainForm, whatIfForm } from './tools.js';

const SERIES = [
  { name: 'allowed', label: 'allowed', stacked: true },
  { name: 'delayed', label: 'delayed', stacked: true },
  { name: 'denied', label: 'denied', stacked: true },
  { name: 'rerouted', label: 'rerouted', stacked: true },
  { name: 'shadow_denied', label: 'shadow', stacked: true },
];
const KEYS = 10;

let chart;
let name = null;

export function start() {
  chart = new Chart(at('chart-rule'), { title: 'Requests per second', series: SERIES, format: rate });
  explainForm(at('rule-explain'), at('rule-explained'), () => name);
  whatIfForm(at('what-if'), at('what-if-result'), () => name);
  keyForm(at('rule-key'), () => name);
  at('yaml-row').append(copyButton(at('yaml')));
  at('rule-keys-outcome').addEventListener('change', () => document.dispatchEvent(new Event('refresh')));
}

// Shows another rule: forgets what is shown about the previous one.
export function open(rule) {
  if (name === rule) return;
  name = rule;
  chart.data = null;
  setText(at('rule-name'), rule);
  ['rule-explained', 'what-if-result', 'rule-keys', 'rule-tiles', 'rule-badges', 'rule-about'].forEach(id => at(id).replaceChildren());
  setText(at('yaml'), '');
  setText(at('rule-words'), '');
}

const chosen = radio => document.querySelector(`input[name="${radio}"]:checked`).value;

export async function refresh({ seconds, step }) {
  const shown = name;
  const text = encodeURIComponent(shown);
  const [status, rule, history, top, changes] = await Promise.all([
    request('/status'),
    optional(`/rule?name=${text}`),
    optional(`/history?rule=${text}&seconds=${seconds}&step=${step}`),
    optional(`/top?rule=${text}&window=${chosen('rule-keys-window')}&limit=${KEYS}`),
    optional('/changes'),
  ]);
  if (shown !== name) return;
  showState(status);
  setHidden(at('rule-gone'), rule !== null);
  setHidden(at('rule-active'), rule === null && history === null);
  if (rule) showRule(rule);
  if (history) showHistory(history);
  showKeys(top, rule);
  setHidden(at('rule-changes-card'), !changes);
  if (changes) showChanges(at('rule-changes'), changes, name);
}

function showRule(rule) {
  setText(at('rule-words'), `${rule.who}, ${rule.what}: ${rule.limit}; over the limit: ${rule.beyond}`);
  at('rule-badges').replaceChildren(...(rule.shadow ? [badge('shadow', 'shadow')] : []), ...(rule.shared ? [badge('shared')] : []));
  list(at('rule-about'), [
    ['counted by', rule.by],
    ['source', rule.source],
    ['active as it is', rule.since && `for ${ago(rule.since)}`],
    ['keys', rule.keys === undefined ? undefined : number(rule.keys)],
    ...rule.notes.map(note => ['note', note]),
    ['failed expressions', rule.counts.failures ? number(rule.counts.failures) : undefined],
  ]);
  setHidden(at('yaml-card'), !rule.yaml);
  if (rule.yaml) setText(at('yaml'), rule.yaml);
}

function showHistory(history) {
  const values = Object.fromEntries(SERIES.map(series => [series.name, history[series.name].map(count => count / history.step)]));
  chart.set({ start: history.start, step: history.step, values });
  keyed(at('rule-tiles'), SERIES, series => series.name,
    series => make('div', { className: 'tile' }, make('dt', { textContent: series.label }), make('dd', { className: `t-${series.name}` })),
    (element, series) => setText(element.lastChild, number(sum(history[series.name]))));
}

function showKeys(top, rule) {
  setHidden(at('rule-keys-card'), !top);
  setHidden(at('what-if-card'), !top || !!top.off || !rule);
  if (!top) return;
  const outcome = at('rule-keys-outcome').value;
  const report = top.rules.find(other => other.rule === name);
  const keys = report ? report[outcome] : { total: 0, max_error: 0, keys: [] };
  const rows = keys.keys.map(key => ({ ...key, outcome, rule: name, shadow: report.shadow && outcome === 'denied' }));
  showRows(at('rule-keys'), rows, false);
  setHidden(at('rule-keys-table'), rows.length === 0);
  setHidden(at('rule-keys-empty'), rows.length > 0);
  setText(at('rule-keys-empty'), top.off ? 'Top keys are off: the rule file has top_keys: off.' : `No key was ${outcome} in the last ${top.window}.`);
  const error = keys.max_error ? `; each count is too high by at most ${number(keys.max_error)}` : '';
  const sampled = outcome === 'allowed' ? ', estimated from a sample' : '';
  setText(at('rule-keys-note'), rows.length ? `${number(keys.total)} ${outcome} in the last ${top.window}${sampled}${error}` : '');
}

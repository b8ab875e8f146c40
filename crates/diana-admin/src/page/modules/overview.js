// The overview: counts now, charts, who is limited, the rules, and a search over rules and keys.
import { optional, request } from './api.js';
import * as audit from './audit.js';
import { Chart } from './chart.js';
import { ago, at, badge, keyed, make, milliseconds, number, rate, setHidden, setText, sum } from './dom.js';
import { keyForm, OUTCOMES as KEY_OUTCOMES, rowsOf, showRows } from './keys.js';
import { showChanges } from './changes.js';
import { showState } from './state.js';
import { explainForm } from './tools.js';

const PAGE_SIZE = 50; // rules shown at once
const KEYS = 10;
const AUDITED = 20; // changes in the audit log
const RECENT = 10; // seconds that "now" is the mean of

const OUTCOMES = [
  { name: 'allowed', label: 'allowed', stacked: true },
  { name: 'denied', label: 'denied', stacked: true },
  { name: 'rerouted', label: 'rerouted', stacked: true },
  { name: 'delayed', label: 'delayed', stacked: false },
  { name: 'shadow_denied', label: 'shadow', stacked: false },
];

const PERCENTILES = ['p50', 'p95', 'p99'].map(name => ({ name, label: name, stacked: false }));

const perSecond = (history, names) => Object.fromEntries(names.map(({ name }) => [name, history[name].map(count => count / history.step)]));

let charts;
let offset = 0;
let loads = -1;
let last = {};

export function start() {
  charts = {
    requests: new Chart(at('chart-requests'), { title: 'Requests per second', series: OUTCOMES, format: rate }),
    latency: new Chart(at('chart-latency'), { title: 'Response time', series: PERCENTILES, format: milliseconds }),
  };
  at('latency-of').addEventListener('change', drawLatency);
  at('keys-outcome').addEventListener('change', drawKeys);
  at('rules-previous').addEventListener('click', () => turn(-PAGE_SIZE));
  at('rules-next').addEventListener('click', () => turn(PAGE_SIZE));
  explainForm(at('explain'), at('explained'));
  audit.start();
  keyForm(at('key'), data => data.get('rule').trim());
}

function turn(by) {
  offset = Math.max(0, offset + by);
  document.dispatchEvent(new Event('refresh'));
}

export const searched = () => { offset = 0; };

const chosen = name => document.querySelector(`input[name="${name}"]:checked`).value;

export async function refresh({ seconds, step }) {
  const find = at('find').value.trim();
  const text = encodeURIComponent(find);
  const [status, history, rules, top, found, audited] = await Promise.all([
    request('/status'),
    optional(`/history?seconds=${seconds}&step=${step}&sums=true`),
    request(`/rules?limit=${PAGE_SIZE}&offset=${offset}&find=${text}&sort=denied`),
    optional(`/top?window=${chosen('keys-window')}&limit=${KEYS}`),
    find ? optional(`/top?window=hour&limit=5&find=${text}`) : null,
    optional(`/audit?limit=${AUDITED}`),
  ]);
  if (at('find').value.trim() !== find) return;
  last = { status, history, rules, top, found, find, seconds };
  showState(status);
  if (history) showHistory(history);
  drawKeys();
  showFound();
  showRules();
  audit.showAudit(audited);
  at('changes').querySelectorAll('time').forEach(time => setText(time, `${ago(time.dateTime)} ago`));
  if (!status.source || status.source.loads + status.source.errors !== loads) {
    const changes = await optional('/changes');
    setHidden(at('changes-card'), !changes);
    if (changes) showChanges(at('changes'), changes);
    // Read again once a source has loaded something or failed.
    loads = status.source ? status.source.loads + status.source.errors : -1;
  }
}

function showHistory(history) {
  charts.requests.set({ start: history.start, step: history.step, values: perSecond(history, OUTCOMES) });
  drawLatency();
  const recent = name => sum(history[name].slice(-Math.max(1, Math.ceil(RECENT / history.step))));
  const seconds = Math.max(1, Math.ceil(RECENT / history.step)) * history.step;
  const p99 = history.latency.request.p99.filter(value => value !== null).pop();
  const tiles = [
    ...OUTCOMES.map(({ name, label }) => ({ name, label, value: rate(recent(name) / seconds), unit: '/s' })),
    { name: 'p99', label: 'p99 time', value: milliseconds(p99), unit: '' },
  ];
  keyed(at('tiles'), tiles, tile => tile.name,
    tile => make('div', { className: 'tile' }, make('dt', { textContent: tile.label }), make('dd', { className: `t-${tile.name}` })),
    (element, tile) => setText(element.lastChild, `${tile.value}${tile.unit}`));
  const isIdle = OUTCOMES.every(({ name }) => sum(history[name]) === 0);
  const isFresh = Object.values(last.status.requests).every(count => count === 0);
  setHidden(at('no-traffic'), !(isIdle && isFresh));
}

function drawLatency() {
  const { history } = last;
  if (history) charts.latency.set({ start: history.start, step: history.step, values: history.latency[at('latency-of').value] });
}

function drawKeys() {
  const { top } = last;
  setHidden(at('keys-card'), !top);
  if (!top) return;
  const outcome = at('keys-outcome').value;
  const rows = rowsOf(top, outcome, KEYS).map(row => ({ ...row, outcome }));
  showRows(at('keys'), rows, true);
  setHidden(at('keys-table'), rows.length === 0);
  setHidden(at('keys-empty'), rows.length > 0);
  const window = top.window === 'hour' ? 'last hour' : 'last minute';
  const hint = outcome === 'denied' ? ' A key appears here as soon as a rule denies it. To see whom a new limit would deny, add it with shadow: true.' : '';
  setText(at('keys-empty'), top.off ? 'Top keys are off: the rule file has top_keys: off.' : `No key was ${outcome} in the ${window}.${hint}`);
  setText(at('keys-note'), outcome === 'allowed' && rows.length ? 'estimated from a sample' : '');
}


// Keys that contain the searched text, with their rules; each with its most important count.
function showFound() {
  const { found, find } = last;
  const keys = new Map();
  for (const outcome of found ? KEY_OUTCOMES : []) {
    for (const row of rowsOf(found, outcome, KEYS)) {
      const id = `${row.rule}\n${row.text}`;
      const label = `${number(row.count)} ${row.shadow ? 'shadow denied' : outcome}`;
      if (!keys.has(id)) keys.set(id, { ...row, outcome, label });
    }
  }
  setHidden(at('found'), !find || !found);
  setText(at('found-none'), keys.size ? '' : 'No key with this text had requests in the last hour.');
  setHidden(at('found-table'), keys.size === 0);
  showRows(at('found-keys'), [...keys.values()], true);
}

function showRules() {
  const { rules, history, find, seconds } = last;
  const sums = new Map((history?.rules || []).map(rule => [rule.rule, rule]));
  const label = { 300: '5 min', 900: '15 min', 3600: 'hour' }[seconds];
  setText(at('rules-span'), `requests of the last ${label}`);
  setText(at('total'), rules.found === rules.total ? number(rules.total) : `${number(rules.found)} of ${number(rules.total)}`);
  const zero = { allowed: 0, denied: 0, delayed: 0, rerouted: 0, shadow_denied: 0 };
  const rows = rules.rules.map(rule => ({ rule, counts: sums.get(rule.name) || zero }));
  keyed(at('rules'), rows, row => row.rule.name, createRule, updateRule);
  setHidden(at('rules-none'), rows.length > 0);
  const end = offset + rules.rules.length;
  setHidden(at('rules-pages'), rules.found <= PAGE_SIZE);
  setText(at('rules-range'), `${number(offset + 1)} to ${number(end)} of ${number(rules.found)}`);
  at('rules-previous').disabled = offset === 0;
  at('rules-next').disabled = end >= rules.found;
  keyed(at('names'), rules.rules, rule => rule.name, rule => make('option', { value: rule.name }), () => {});
}

function createRule({ rule }) {
  const name = make('th', { scope: 'row' }, make('a', { href: `#/rule/${encodeURIComponent(rule.name)}`, textContent: rule.name }));
  if (rule.shadow) name.append(' ', badge('shadow', 'shadow'));
  if (rule.shared) name.append(' ', badge('shared'));
  name.append(make('small', { className: 'limit' }));
  const count = outcome => make('td', { className: `number n-${outcome}` });
  return make('tr', {}, name, make('td', { className: 'wide who' }), count('allowed'), count('denied'), count('delayed'), count('shadow_denied'));
}

function updateRule(element, { rule, counts }) {
  setText(element.querySelector('.limit'), `${rule.limit}${rule.counts.failures ? `; expressions failed ${number(rule.counts.failures)} times` : ''}`);
  setText(element.querySelector('.who'), `${rule.who}, ${rule.what}`);
  const show = (outcome, count) => {
    const cell = element.querySelector(`.n-${outcome}`);
    setText(cell, number(count));
    cell.classList.toggle('zero', count === 0);
  };
  show('allowed', counts.allowed);
  show('delayed', counts.delayed);
  show('denied', counts.denied + counts.rerouted);
  show('shadow_denied', counts.shadow_denied);
}

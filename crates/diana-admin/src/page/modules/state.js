// The state of the program: phase, degraded parts, rule source, counts, upstreams, certificates.
import { ago, at, badge, bytes, list, make, milliseconds, number, setHidden, setText } from './dom.js';
import { GATEWAY, UPSTREAM } from './metrics.js';

const words = field => field.replaceAll('_', ' ');

// The columns of the metrics that are shown; their help is the tooltip.
at('upstreams-weight').after(...UPSTREAM.map(([field, help]) => make('th', { scope: 'col', className: 'number', title: help, textContent: words(field) })));

export function showState(status) {
  at('phase').className = `badge ${status.phase === 'ready' ? 'good' : 'warn'}`;
  setText(at('phase'), status.phase);
  setText(at('about'), `${status.version}, up for ${ago(status.started)}`);
  showDegraded(status);
  showSettings(status.settings);
  showSource(status.source);
  showStore(status);
  showUpstreams(status);
}

// What does not work as configured, with its reason.
function degraded(status) {
  if (status.degraded) return status.degraded;
  const parts = [];
  if (status.store && !status.store.up) parts.push({ part: 'redis', since: status.store.down_since, reason: status.store.reason });
  for (const error of status.source ? status.source.failing : []) {
    parts.push({ part: error.origin === 'local' ? 'rule_file' : 'config_server', since: error.when, reason: error.what });
  }
  return parts;
}

const PARTS = {
  redis: 'Redis is unreachable: shared limits are counted by their fallback',
  config_server: 'The config server is unreachable or its rules are invalid: the last good rules stay active',
  rule_file: 'The rule file is invalid: the previous rules stay active',
};

let shownDegraded = '';

function showDegraded(status) {
  const parts = degraded(status);
  // Only a change is announced by screen readers, not the passing time.
  const identity = JSON.stringify(parts.map(part => [part.part, part.reason]));
  setHidden(at('degraded'), parts.length === 0);
  if (identity !== shownDegraded) {
    shownDegraded = identity;
    at('degraded').replaceChildren(make('h2', { textContent: 'Degraded' }), ...parts.map(part => make('div', {},
      make('p', {}, make('b', { textContent: PARTS[part.part] || part.part }), make('span', { className: 'since' })),
      ...(part.reason ? [make('pre', { textContent: part.reason })] : []))));
  }
  at('degraded').querySelectorAll('.since').forEach((element, index) => {
    setText(element, parts[index].since ? ` for ${ago(parts[index].since)}` : '');
  });
}

// The fields of the rule file that were changed and wait for a restart.
function showSettings(settings) {
  const waiting = settings ? settings.waiting : [];
  setHidden(at('waiting'), waiting.length === 0);
  setText(at('waiting'), waiting.length ? `Changed settings need a restart: ${waiting.join(', ')}.` : '');
}

function showSource(source) {
  if (!source) return list(at('source'), [['active', 'the rules that the program was started with']]);
  const last = source.last_error;
  const failing = source.failing.find(error => error.origin !== 'local');
  const remote = source.connected ? badge('reachable', 'good') : make('span', {}, badge('unreachable', 'bad'), failing ? ` for ${ago(failing.when)}` : '');
  const origins = { local: 'local file', remote: 'config server', 'last good': 'config server (last good document)' };
  list(at('source'), [
    ['rules from', origins[source.active] || source.active],
    ['name', source.name],
    ['version', source.version],
    ['loaded', `${ago(source.since)} ago`],
    ['config server', source.connected === undefined ? undefined : remote],
    ['loads', `${number(source.loads)}, ${number(source.errors)} failed`],
    ['last error', last && !source.failing.length ? `${ago(last.when)} ago, resolved` : undefined],
  ]);
}

function showStore(status) {
  const { store } = status;
  const up = () => (store.up ? badge('reachable', 'good') : make('span', {}, badge('unreachable', 'bad'), store.down_since ? ` for ${ago(store.down_since)}` : ''));
  const shared = store ? [
    ['Redis', up()],
    ['reason', store.reason],
    ['instances', number(store.instances)],
    ['commands', number(store.commands)],
    ['round trips saved', number(store.saved_by_deny_cache + store.saved_by_leases + store.saved_by_batching)],
    ['leased permits', number(store.leased)],
  ] : [['Redis', 'not used: no shared limits']];
  list(at('store'), [
    ['in this process', `${number(status.keys)} keys, ${bytes(status.key_bytes)}`],
    ...shared,
    ...GATEWAY.map(([field]) => [words(field), number(status[field] ?? 0)]),
    ['traffic', `${bytes(status.bytes_in)} in, ${bytes(status.bytes_out)} out`],
    ['dropped log lines', status.access_log_dropped === undefined ? undefined : number(status.access_log_dropped)],
    ...(status.certificates || []).map(certificate => [`certificate ${certificate.names.join(', ')}`, `expires in ${span(certificate.not_after)}`]),
  ]);
}

const span = time => `${Math.floor((Date.parse(time) - Date.now()) / 86400000)} days`;

function showUpstreams(status) {
  const upstreams = status.upstreams || [];
  setHidden(at('upstreams-card'), !upstreams.length && !status.upstream_failures);
  setText(at('upstream-failures'), status.upstream_failures ? `${number(status.upstream_failures)} failures` : '');
  setHidden(at('upstreams-table'), !upstreams.length);
  const cell = (text, className = 'number') => make('td', { className, textContent: text });
  at('upstreams').replaceChildren(...upstreams.map(upstream => {
    const check = upstream.check;
    const state = upstream.healthy ? badge('healthy', 'good') : badge(check && !check.passing ? 'fails its checks' : 'ejected', 'bad');
    if (check) state.title = `${number(check.passed)} checks passed, ${number(check.failed)} failed${check.error ? `; the last one: ${check.error}` : ''}`;
    const retries = upstream.retries_denied ? `${number(upstream.retries)} (${number(upstream.retries_denied)} denied)` : number(upstream.retries ?? 0);
    return make('tr', {}, make('th', { scope: 'row' }, make('bdi', { className: 'key', textContent: upstream.address })), make('td', {}, state),
      cell(number(upstream.weight ?? 1), 'number wide'), ...UPSTREAM.map(([field]) => cell(number(upstream[field] ?? 0))), cell(retries, 'number wide'), cell(milliseconds(upstream.p50_ms), 'number wide'), cell(milliseconds(upstream.p99_ms)),
      cell(number(upstream.in_flight ?? 0), 'number wide'), cell(number(upstream.connections ?? 0), 'number wide'));
  }));
}

// The web page: polls /status and /rules, and shows the results. Texts are set, never parsed as HTML.
'use strict';

const PAGE_SIZE = 200; // rules shown at once
const POLL_INTERVAL = 2000; // milliseconds

const at = id => document.getElementById(id);
let token = sessionStorage.getItem('token') || '';
let previous = null;

async function request(path, post) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = { headers, method: post ? 'POST' : 'GET' };
  if (post) options.body = JSON.stringify(post);
  const response = await fetch(path, options);
  const body = await response.json();
  if (!response.ok) throw Object.assign(new Error(body.detail), { status: response.status });
  return body;
}

function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

const number = count => {
  if (count < 100000) return count.toLocaleString('en');
  return new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(count);
};

const bytes = count => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${count.toFixed(count < 10 && unit ? 1 : 0)} ${units[unit]}`;
};

const span = seconds => {
  if (seconds >= 172800) return `${Math.floor(seconds / 86400)} days`;
  if (seconds >= 7200) return `${Math.floor(seconds / 3600)} h`;
  if (seconds >= 120) return `${Math.floor(seconds / 60)} min`;
  return seconds >= 1 ? `${Math.floor(seconds)} s` : `${Math.round(seconds * 1000)} ms`;
};

const ago = time => span(Math.max(0, (Date.now() - Date.parse(time)) / 1000));

function tile(count, name, rate) {
  const more = rate === undefined ? '' : `${number(Math.round(rate * 10) / 10)}/s`;
  return make('div', { className: 'tile' }, make('span', { textContent: name }), make('b', { textContent: count }), make('i', { textContent: more }));
}

function list(target, pairs) {
  const present = pairs.filter(([, value]) => value !== undefined && value !== '');
  target.replaceChildren(...present.flatMap(([name, value]) => [make('dt', { textContent: name }), make('dd', {}, value)]));
}

const badge = (text, kind) => make('span', { className: `badge ${kind}`, textContent: text });

function showStatus(status) {
  const now = Date.now();
  const kind = status.phase === 'ready' ? 'good' : '';
  at('phase').className = `badge ${kind}`;
  at('phase').textContent = status.phase;
  at('about').textContent = `${status.version}, up for ${ago(status.started)}`;
  const rate = name => previous && (status.requests[name] - previous.requests[name]) * 1000 / (now - previous.now);
  const LABELS = { refused: 'denied', diverted: 'rerouted', gone: 'disconnected' };
  const requests = name => tile(number(status.requests[name]), LABELS[name] ?? name, rate(name) ?? undefined);
  const tiles = ['forwarded', 'refused', 'diverted', 'failed', 'rejected', 'answered', 'gone'].map(requests);
  tiles.push(tile(number(status.connections), 'connections'), tile(number(status.keys), 'keys'));
  at('tiles').replaceChildren(...tiles);
  previous = { requests: status.requests, now };

  const { source, store } = status;
  if (source) {
    const errors = source.failing.map(error => make('pre', { textContent: `${ago(error.when)} ago, ${error.origin}: ${error.what}` }));
    const last = source.last_error;
    list(at('source'), [
      ['active', source.in_force],
      ['from', source.name],
      ['version', source.version],
      ['since', `${ago(source.since)} ago`],
      ['config server', source.connected === undefined ? undefined : source.connected ? badge('reachable', 'good') : badge('unreachable', 'bad')],
      ['loads', `${number(source.loads)}, ${number(source.errors)} errors`],
      ...errors.map(error => ['current error', error]),
      ['last error', last && !errors.length ? `${ago(last.when)} ago, resolved` : undefined],
    ]);
  } else {
    list(at('source'), [['active', 'the rules that the program was started with']]);
  }
  const local = [['in this process', `${number(status.keys)} keys, ${bytes(status.key_bytes)}`]];
  const shared = store ? [
    ['shared', store.up ? badge('up', 'good') : badge('down', 'bad')],
    ['since', store.down_since && `${ago(store.down_since)} ago`],
    ['reason', store.reason],
    ['instances', number(store.instances)],
    ['commands', number(store.commands)],
    ['round trips saved', number(store.saved_by_refusals + store.saved_by_leases + store.saved_by_batching)],
    ['leased permits', number(store.leased)],
  ] : [['shared', 'no shared store']];
  const log = status.access_log_dropped === undefined ? [] : [['dropped log lines', number(status.access_log_dropped)]];
  list(at('store'), [...local, ...shared, ['traffic', `${bytes(status.bytes_in)} in, ${bytes(status.bytes_out)} out`], ['upstream failures', number(status.upstream_failures)], ...log]);
}

function row(rule) {
  const counts = rule.counts;
  const name = make('td', {}, rule.name);
  if (rule.shadow) name.append(badge('shadow', ''));
  if (rule.shared) name.append(badge('shared', 'good'));
  const limit = make('td', {}, rule.limit, ...rule.notes.map(note => make('small', { textContent: note })));
  if (counts.failures) limit.append(make('small', { textContent: `expressions failed ${number(counts.failures)} times` }));
  const count = (value, hot) => make('td', { className: `number${hot && value ? ' hot' : ''}`, textContent: number(value) });
  const denied = count(counts.refused + counts.diverted + counts.shadow_refused, true);
  if (counts.diverted) denied.append(make('small', { textContent: `${number(counts.diverted)} rerouted` }));
  if (counts.shadow_refused) denied.append(make('small', { textContent: 'shadow only' }));
  const texts = [rule.who, rule.what].map(text => make('td', { textContent: text }));
  const overLimit = make('td', { textContent: rule.beyond });
  return make('tr', {}, name, ...texts, limit, overLimit, count(counts.granted), count(counts.waited), denied);
}

function showRules(page) {
  at('total').textContent = page.found === page.total ? number(page.total) : `${number(page.found)} of ${number(page.total)}`;
  at('rules').replaceChildren(...page.rules.map(row));
  const more = page.found - page.rules.length;
  at('more').hidden = more <= 0;
  at('more').textContent = `and ${number(more)} more: search to narrow the list`;
  at('names').replaceChildren(...page.rules.map(rule => make('option', { value: rule.name })));
}

async function refresh() {
  try {
    const find = encodeURIComponent(at('find').value);
    const [status, rules] = await Promise.all([request('/status'), request(`/rules?limit=${PAGE_SIZE}&find=${find}`)]);
    showStatus(status);
    showRules(rules);
    at('main').hidden = false;
    at('login').hidden = at('error').hidden = true;
  } catch (error) {
    at('login').hidden = error.status !== 401;
    at('main').hidden = error.status === 401;
    at('error').hidden = error.status === 401 && !token;
    at('error').textContent = error.status === 401 ? 'Invalid token' : `Request failed: ${error.message}`;
  }
}

async function poll() {
  if (!document.hidden && at('login').hidden) await refresh();
  setTimeout(poll, POLL_INTERVAL);
}

at('login').addEventListener('submit', event => {
  event.preventDefault();
  token = at('token').value;
  sessionStorage.setItem('token', token);
  refresh();
});

// A link can't send the token, so the script fetches its target and shows it here.
at('links').addEventListener('click', async event => {
  const link = event.target.closest('a');
  if (!token || !link) return;
  event.preventDefault();
  const path = link.getAttribute('href');
  at('raw-name').textContent = path;
  try {
    const response = await fetch(path, { headers: { authorization: `Bearer ${token}` } });
    const text = await response.text();
    const isJson = (response.headers.get('content-type') || '').includes('json');
    at('raw-text').textContent = isJson ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch (error) {
    at('raw-text').textContent = `Request failed: ${error.message}`;
  }
  at('raw').showModal();
});

at('raw-close').addEventListener('click', () => at('raw').close());

let typing;
at('find').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(refresh, 200);
});

at('explain').addEventListener('submit', async event => {
  event.preventDefault();
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(event.target)) {
    const values = name === 'header' ? value.split('\n') : [value];
    values.filter(value => value.trim()).forEach(value => query.append(name, value.trim()));
  }
  const line = (className, textContent) => make('p', { className, textContent });
  try {
    const explained = await request(`/explain?${query}`);
    const matching = explained.rules.filter(rule => rule.about);
    const others = explained.rules.length - matching.length;
    if (explained.rejected) {
      at('explained').replaceChildren(line('no', `answered with ${explained.rejected.status}: ${explained.rejected.detail}`));
      return;
    }
    at('explained').replaceChildren(
      line(explained.granted ? 'yes' : 'no', explained.granted ? 'granted' : `denied by ${explained.denied_by.join(', ')}`),
      ...matching.map(rule => line('', rule.text)),
      line('quiet', `${number(others)} other ${others === 1 ? 'rule does' : 'rules do'} not match`));
  } catch (error) {
    at('explained').replaceChildren(line('no', error.message));
  }
});

at('key').addEventListener('submit', async event => {
  event.preventDefault();
  const action = event.submitter ? event.submitter.value : 'peek';
  const form = new FormData(event.target);
  const key = form.get('key').split('|').map(part => part.trim()).filter(part => part);
  const body = { rule: form.get('rule').trim(), key };
  if (action === 'refund' || action === 'charge') body.cost = Number(form.get('cost'));
  const target = at('key-status');
  try {
    const status = await request(`/${action}`, body);
    target.replaceChildren(...status.limits.flatMap(limit => {
      const reset = limit.reset ? `, resets in ${span(limit.reset)}` : '';
      const bar = make('div', {});
      bar.style.width = `${100 * limit.remaining / Math.max(1, limit.limit)}%`;
      const list = status.listed ? `, but the key is on the \`${status.listed}\` list` : '';
      const fallback = status.counted === 'fallback' ? ', counted locally while the shared store is unreachable' : '';
      const text = `${limit.name}: ${number(limit.remaining)} of ${number(limit.limit)} remaining${reset}${list}${fallback}`;
      return [make('p', { className: limit.grants ? 'yes' : 'no', textContent: text }), make('div', { className: 'meter' }, bar)];
    }));
  } catch (error) {
    target.replaceChildren(make('p', { className: 'no', textContent: error.message }));
  }
});

refresh().then(() => setTimeout(poll, POLL_INTERVAL));

// The page for people: polls /status and /rules, and shows the results. Texts are set, never parsed as HTML.
'use strict';

const SHOWN = 200; // rules at a time
const PAUSE = 2000; // milliseconds between two polls

const at = id => document.getElementById(id);
let token = sessionStorage.getItem('token') || '';
let before = null;

async function ask(path, post) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = { headers, method: post ? 'POST' : 'GET' };
  if (post) options.body = JSON.stringify(post);
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.detail), { status: answer.status });
  return said;
}

function make(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
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
  const more = rate === undefined ? '' : `${number(Math.round(rate * 10) / 10)} a second`;
  return make('div', { className: 'tile' }, make('span', { textContent: name }), make('b', { textContent: count }), make('i', { textContent: more }));
}

function list(into, pairs) {
  const kept = pairs.filter(([, value]) => value !== undefined && value !== '');
  into.replaceChildren(...kept.flatMap(([name, value]) => [make('dt', { textContent: name }), make('dd', {}, value)]));
}

const badge = (text, kind) => make('span', { className: `badge ${kind}`, textContent: text });

function showStatus(status) {
  const now = Date.now();
  const kind = status.phase === 'ready' ? 'good' : '';
  at('phase').className = `badge ${kind}`;
  at('phase').textContent = status.phase;
  at('about').textContent = `${status.version}, up for ${ago(status.started)}`;
  const rate = name => before && (status.requests[name] - before.requests[name]) * 1000 / (now - before.now);
  const seen = name => tile(number(status.requests[name]), name, rate(name) ?? undefined);
  const tiles = ['forwarded', 'refused', 'diverted', 'failed', 'rejected', 'answered', 'gone'].map(seen);
  tiles.push(tile(number(status.connections), 'connections'), tile(number(status.keys), 'keys'));
  at('tiles').replaceChildren(...tiles);
  before = { requests: status.requests, now };

  const { source, store } = status;
  if (source) {
    const wrong = source.failing.map(error => make('pre', { textContent: `${ago(error.when)} ago, ${error.origin}: ${error.what}` }));
    const last = source.last_error;
    list(at('source'), [
      ['active', source.in_force],
      ['from', source.name],
      ['version', source.version],
      ['since', `${ago(source.since)} ago`],
      ['centre', source.connected === undefined ? undefined : source.connected ? badge('answers', 'good') : badge('away', 'bad')],
      ['loads', `${number(source.loads)}, ${number(source.errors)} errors`],
      ...wrong.map(error => ['wrong now', error]),
      ['last error', last && !wrong.length ? `${ago(last.when)} ago, resolved` : undefined],
    ]);
  } else {
    list(at('source'), [['active', 'the rules that the program was started with']]);
  }
  const here = [['in this process', `${number(status.keys)} keys, ${bytes(status.key_bytes)}`]];
  const there = store ? [
    ['shared', store.up ? badge('up', 'good') : badge('down', 'bad')],
    ['since', store.down_since && `${ago(store.down_since)} ago`],
    ['because', store.reason],
    ['instances', number(store.instances)],
    ['commands', number(store.commands)],
    ['trips saved', number(store.saved_by_refusals + store.saved_by_leases + store.saved_by_batching)],
    ['on lease', number(store.leased)],
  ] : [['shared', 'nothing: there is no store to share with']];
  const log = status.access_log_dropped === undefined ? [] : [['log lines lost', number(status.access_log_dropped)]];
  list(at('store'), [...here, ...there, ['traffic', `${bytes(status.bytes_in)} in, ${bytes(status.bytes_out)} out`], ['upstream failures', number(status.upstream_failures)], ...log]);
}

function row(rule) {
  const counts = rule.counts;
  const name = make('td', {}, rule.name);
  if (rule.shadow) name.append(badge('shadow', ''));
  if (rule.shared) name.append(badge('shared', 'good'));
  const limit = make('td', {}, rule.limit, ...rule.notes.map(note => make('small', { textContent: note })));
  if (counts.failures) limit.append(make('small', { textContent: `expressions failed ${number(counts.failures)} times` }));
  const count = (value, hot) => make('td', { className: `number${hot && value ? ' hot' : ''}`, textContent: number(value) });
  const refused = count(counts.refused + counts.diverted + counts.shadow_refused, true);
  if (counts.diverted) refused.append(make('small', { textContent: `${number(counts.diverted)} diverted` }));
  if (counts.shadow_refused) refused.append(make('small', { textContent: 'would have' }));
  const texts = [rule.who, rule.what].map(text => make('td', { textContent: text }));
  const beyond = make('td', { textContent: rule.beyond });
  return make('tr', {}, name, ...texts, limit, beyond, count(counts.granted), count(counts.waited), refused);
}

function showRules(said) {
  at('total').textContent = said.found === said.total ? number(said.total) : `${number(said.found)} of ${number(said.total)}`;
  at('rules').replaceChildren(...said.rules.map(row));
  const more = said.found - said.rules.length;
  at('more').hidden = more <= 0;
  at('more').textContent = `and ${number(more)} more: find those you mean`;
  at('names').replaceChildren(...said.rules.map(rule => make('option', { value: rule.name })));
}

async function look() {
  try {
    const find = encodeURIComponent(at('find').value);
    const [status, rules] = await Promise.all([ask('/status'), ask(`/rules?limit=${SHOWN}&find=${find}`)]);
    showStatus(status);
    showRules(rules);
    at('main').hidden = false;
    at('login').hidden = at('trouble').hidden = true;
  } catch (error) {
    at('login').hidden = error.status !== 401;
    at('main').hidden = error.status === 401;
    at('trouble').hidden = error.status === 401 && !token;
    at('trouble').textContent = error.status === 401 ? 'That is not the token.' : `No answer: ${error.message}`;
  }
}

async function lookAgain() {
  if (!document.hidden && at('login').hidden) await look();
  setTimeout(lookAgain, PAUSE);
}

at('login').addEventListener('submit', event => {
  event.preventDefault();
  token = at('token').value;
  sessionStorage.setItem('token', token);
  look();
});

// A link can't send the token, so the script fetches its target and shows it here.
at('links').addEventListener('click', async event => {
  const link = event.target.closest('a');
  if (!token || !link) return;
  event.preventDefault();
  const path = link.getAttribute('href');
  at('raw-name').textContent = path;
  try {
    const answer = await fetch(path, { headers: { authorization: `Bearer ${token}` } });
    const text = await answer.text();
    const isJson = (answer.headers.get('content-type') || '').includes('json');
    at('raw-text').textContent = isJson ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch (error) {
    at('raw-text').textContent = `No answer: ${error.message}`;
  }
  at('raw').showModal();
});

at('raw-close').addEventListener('click', () => at('raw').close());

let typing;
at('find').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(look, 200);
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
    const said = await ask(`/explain?${query}`);
    const about = said.rules.filter(rule => rule.about);
    const others = said.rules.length - about.length;
    if (said.rejected) {
      at('explained').replaceChildren(line('no', `answered with ${said.rejected.status}: ${said.rejected.detail}`));
      return;
    }
    at('explained').replaceChildren(
      line(said.granted ? 'yes' : 'no', said.granted ? 'granted' : `denied by ${said.denied_by.join(', ')}`),
      ...about.map(rule => line('', rule.text)),
      line('quiet', `${number(others)} other ${others === 1 ? 'rule is' : 'rules are'} not about it`));
  } catch (error) {
    at('explained').replaceChildren(line('no', error.message));
  }
});

at('key').addEventListener('submit', async event => {
  event.preventDefault();
  const what = event.submitter ? event.submitter.value : 'peek';
  const form = new FormData(event.target);
  const key = form.get('key').split('|').map(part => part.trim()).filter(part => part);
  const named = { rule: form.get('rule').trim(), key };
  if (what === 'refund' || what === 'charge') named.cost = Number(form.get('cost'));
  const into = at('standing');
  try {
    const said = await ask(`/${what}`, named);
    into.replaceChildren(...said.limits.flatMap(limit => {
      const back = limit.reset ? `, gives back in ${span(limit.reset)}` : '';
      const bar = make('div', {});
      bar.style.width = `${100 * limit.remaining / Math.max(1, limit.limit)}%`;
      const list = said.listed ? `, but the key is on \`${said.listed}\`` : '';
      const by = said.counted === 'fallback' ? ', as counted here while the shared store is unreachable' : '';
      const text = `${limit.name}: ${number(limit.remaining)} of ${number(limit.limit)} left${back}${list}${by}`;
      return [make('p', { className: limit.grants ? 'yes' : 'no', textContent: text }), make('div', { className: 'meter' }, bar)];
    }));
  } catch (error) {
    into.replaceChildren(make('p', { className: 'no', textContent: error.message }));
  }
});

look().then(() => setTimeout(lookAgain, PAUSE));

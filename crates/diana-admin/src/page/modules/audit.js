// Who changed what, when, and what it was before and after; and a button that reloads the rules.
import { request } from './api.js';
import { ago, at, make, number, setHidden, setText } from './dom.js';

const left = limits => (limits.length ? limits.map(limit => `${number(limit.remaining)} of ${number(limit.limit)} left`).join(' and ') : 'unknown');

const link = rule => make('a', { href: `#/rule/${encodeURIComponent(rule)}`, textContent: rule });

const rules = count => `${number(count)} ${count === 1 ? 'rule' : 'rules'}`;

function described(entry) {
  if (entry.rule) {
    const cost = entry.cost === undefined ? '' : ` ${number(entry.cost)}`;
    const key = entry.key ? [' for ', make('bdi', { className: 'key', textContent: entry.key })] : [];
    return [make('b', { textContent: `${entry.action}${cost}` }), ...key, ' in ', link(entry.rule), `: ${left(entry.before)} → ${left(entry.after)}`];
  }
  if (entry.action === 'reload') return [make('b', { textContent: 'reload' }), ' of rules and certificates'];
  if (entry.tokens) {
    const lists = ['added', 'removed', 'changed'].filter(what => entry.tokens[what].length);
    return [make('b', { textContent: 'admin tokens' }), `: ${lists.map(what => `${what} ${entry.tokens[what].join(', ')}`).join('; ')}`];
  }
  if (entry.action === 'start') return [make('b', { textContent: 'start' }), ` with ${rules(entry.rules)}`];
  if (!entry.ok) return [make('b', { textContent: 'rules' }), ' rejected; the active rules stay'];
  const lists = [['added', entry.added], ['removed', entry.removed], ['changed', entry.changed.map(changed => changed.rule)]];
  const texts = lists.filter(([, names]) => names.length).map(([what, names]) => `${what} ${names.join(', ')}`);
  if (entry.more) texts.push(`${number(entry.more)} more`);
  return [make('b', { textContent: 'rules' }), ` loaded: ${texts.join('; ') || 'none differs'}`];
}

function one(entry) {
  const when = make('time', { dateTime: entry.when, textContent: `${ago(entry.when)} ago`, title: entry.when });
  const by = [entry.who, entry.source, entry.client].filter(text => text).join(', ');
  const failed = entry.rule && !entry.ok ? [make('p', { className: 'no', textContent: `failed: ${entry.error}` })] : [];
  return make('li', {}, make('p', { className: 'quiet' }, when, ', ', make('bdi', { textContent: by })), make('p', {}, ...described(entry)), ...failed);
}

let shown = '';

export function showAudit(audit) {
  setHidden(at('audit-card'), !audit);
  if (!audit) return;
  // Built again only if there is a new change, so that a selection survives.
  const text = JSON.stringify(audit.entries);
  if (text !== shown) at('audit').replaceChildren(...audit.entries.map(one));
  shown = text;
  at('audit').querySelectorAll('time').forEach(time => setText(time, `${ago(time.dateTime)} ago`));
  const dropped = audit.dropped ? `; ${number(audit.dropped)} changes could not be written to it` : '';
  setText(at('audit-note'), audit.file ? `All changes are in ${audit.file}${dropped}.` : '');
}

export function start() {
  at('reload').addEventListener('click', async () => {
    at('reload').disabled = true;
    try {
      const reloaded = await request('/reload', {});
      const waits = reloaded.settings && reloaded.settings.waiting.length ? ' Some changes need a restart.' : '';
      setText(at('reloaded'), reloaded.ok ? `Reloaded: ${rules(reloaded.rules)}.${waits}` : 'Reloaded, with errors.');
    } catch (error) {
      setText(at('reloaded'), error.message);
    }
    at('reload').disabled = false;
    document.dispatchEvent(new Event('refresh'));
  });
}

// What changed in the rules, when, and by which source.
import { ago, make } from './dom.js';

const names = list => list.flatMap((name, index) => [...(index ? [', '] : []), make('a', { href: `#/rule/${encodeURIComponent(name)}`, textContent: name })]);

function one(change) {
  const parts = [];
  if (change.error) parts.push(make('p', {}, make('b', { className: 'no', textContent: 'rejected' }), '; the active rules stay'), make('pre', { textContent: change.error }));
  if (change.start && change.ok) parts.push(make('p', { textContent: `started with ${change.rules} ${change.rules === 1 ? 'rule' : 'rules'}` }));
  else if (change.added.length) parts.push(make('p', {}, make('b', { textContent: 'added ' }), ...names(change.added)));
  if (change.removed.length) parts.push(make('p', {}, make('b', { textContent: 'removed ' }), change.removed.join(', ')));
  for (const { rule, before, after } of change.changed) {
    parts.push(make('div', { className: 'difference' }, ...names([rule]), make('del', { textContent: before }), make('ins', { textContent: after })));
  }
  if (!parts.length) parts.push(make('p', { className: 'quiet', textContent: 'loaded again; no rule differs' }));
  if (change.more && !change.start) parts.push(make('p', { className: 'quiet', textContent: `and ${change.more} more rules` }));
  const when = make('time', { dateTime: change.when, textContent: `${ago(change.when)} ago`, title: change.when });
  return make('li', {}, make('p', { className: 'quiet' }, when, `, ${change.source}`), ...parts);
}

// Shows changes; with a rule, only those of this rule.
export function showChanges(target, changes, rule) {
  const touches = change => change.added.includes(rule) || change.removed.includes(rule) || change.changed.some(other => other.rule === rule);
  const shown = rule === undefined ? changes : changes.filter(touches).map(change => ({
    ...change, start: false, more: 0,
    added: change.added.filter(name => name === rule), removed: change.removed.filter(name => name === rule),
    changed: change.changed.filter(other => other.rule === rule),
  }));
  const empty = make('li', { className: 'quiet', textContent: 'No change since the program was started.' });
  target.replaceChildren(...(shown.length ? shown.map(one) : [empty]));
}

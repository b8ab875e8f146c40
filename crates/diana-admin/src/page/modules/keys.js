// Keys: the heaviest ones of each rule, and one key with peek, refund, charge and reset.
import { request } from './api.js';
import { at, clock, keyed, make, number, setText, span } from './dom.js';

export const OUTCOMES = ['denied', 'delayed', 'allowed'];

// Returns the rows of `/top`, the heaviest first; what shadow rules would have denied comes last.
export function rowsOf(top, outcome, limit) {
  const rows = top.rules.flatMap(rule => rule[outcome].keys.map(key => ({ ...key, rule: rule.rule, shadow: rule.shadow && outcome === 'denied' })));
  return rows.sort((a, b) => a.shadow - b.shadow || b.count - a.count).slice(0, limit);
}

// Fills a table body with rows of keys. `withRule` adds a link to the rule.
export function showRows(body, rows, withRule) {
  const heaviest = Math.max(1, ...rows.map(row => row.count));
  const keyOf = row => `${row.rule}\n${row.text}\n${row.outcome || ''}`;
  keyed(body, rows, keyOf, row => createRow(row, withRule), (element, row) => {
    setText(element.querySelector('.count'), row.label || number(row.count));
    setText(element.querySelector('.since'), clock(Date.parse(row.since) / 1000));
    element.querySelector('.bar').style.width = `${100 * row.count / heaviest}%`;
    element.querySelector('.bar').className = `bar c-${row.shadow ? 'shadow_denied' : row.outcome || 'denied'}`;
  });
}

function createRow(row, withRule) {
  const name = make('bdi', { className: 'key', textContent: row.text, title: row.text });
  const cells = [make('th', { scope: 'row' }, name)];
  if (withRule) {
    const link = make('a', { href: `#/rule/${encodeURIComponent(row.rule)}`, textContent: row.rule });
    cells.push(make('td', { className: 'of-rule' }, link, ...(row.shadow ? [make('small', { textContent: 'shadow' })] : [])));
  }
  const bar = make('td', { className: 'share', 'aria-hidden': 'true' }, make('div', { className: 'bar' }));
  cells.push(make('td', { className: 'number since wide' }), make('td', { className: 'number count' }), bar, make('td', { className: 'actions' }, ...actions(row)));
  return make('tr', {}, ...cells);
}

function actions(row) {
  if (!row.key) return [];
  return [['peek', 'Peek'], ['refund', 'Refund'], ['reset', 'Reset']].map(([action, label]) => {
    const className = action === 'peek' ? 'plain small' : 'plain small operate';
    const button = make('button', { type: 'button', className, textContent: label, 'aria-label': `${label} ${row.text} in ${row.rule}` });
    button.addEventListener('click', () => openKey(row.rule, row.key, action));
    return button;
  });
}

// The dialog of one key: its status, and changes, each of which is confirmed.
let current = null;

export function openKey(rule, key, action) {
  current = { rule, key };
  setText(at('key-rule'), rule);
  setText(at('key-name'), key.join(' | ') || '(everyone)');
  at('key-status').replaceChildren();
  confirm(action === 'peek' ? null : action);
  at('key-dialog').showModal();
  send('peek');
}

// Asks for confirmation of an action; null shows the choices.
function confirm(action) {
  at('key-choices').hidden = action !== null;
  at('key-confirm').hidden = action === null;
  at('key-cost-row').hidden = action !== 'refund' && action !== 'charge';
  if (action === null) return;
  const texts = {
    reset: 'Reset this key? Its count starts again at zero, and requests that wait for it are allowed.',
    refund: 'Refund this cost? The key gets it back at once.',
    charge: 'Charge this cost? The key has less left.',
  };
  setText(at('key-question'), texts[action]);
  setText(at('key-do'), { reset: 'Reset', refund: 'Refund', charge: 'Charge' }[action]);
  at('key-do').value = action;
}

async function send(action) {
  const body = { ...current };
  if (action === 'refund' || action === 'charge') body.cost = Number(at('key-cost').value);
  const target = at('key-status');
  try {
    const status = await request(`/${action}`, body);
    const done = { reset: 'Reset.', refund: `Refunded ${body.cost}.`, charge: `Charged ${body.cost}.` }[action];
    target.replaceChildren(...(done ? [make('p', { className: 'yes', textContent: done })] : []), ...shown(status));
  } catch (error) {
    target.replaceChildren(make('p', { className: 'no', textContent: error.message }));
  }
}

// Shows the status of a key.
function shown(status) {
  return status.limits.flatMap(limit => {
    const bar = make('div', { className: limit.grants ? 'bar c-allowed' : 'bar c-denied' });
    bar.style.width = `${100 * limit.remaining / Math.max(1, limit.limit)}%`;
    const reset = limit.reset ? `, resets in ${span(limit.reset)}` : '';
    const retry = limit.retry_after ? `, next request allowed in ${span(limit.retry_after)}` : '';
    const listed = status.listed ? `, but the key is on the \`${status.listed}\` list` : '';
    const fallback = status.counted === 'fallback' ? ', counted locally while the shared store is unreachable' : '';
    const text = `${limit.name}: ${number(limit.remaining)} of ${number(limit.limit)} remaining${reset}${retry}${listed}${fallback}`;
    return [make('p', { className: limit.grants ? 'yes' : 'no', textContent: text }), make('div', { className: 'meter', 'aria-hidden': 'true' }, bar)];
  });
}

export function start() {
  at('key-close').addEventListener('click', () => at('key-dialog').close());
  at('key-choices').addEventListener('click', event => {
    const action = event.target.closest('button')?.value;
    if (action === 'peek') send('peek');
    else if (action) confirm(action);
  });
  at('key-cancel').addEventListener('click', () => confirm(null));
  at('key-confirm').addEventListener('submit', event => {
    event.preventDefault();
    const action = at('key-do').value;
    confirm(null);
    send(action);
  });
}

// A form that opens the dialog for a typed key.
export function keyForm(form, ruleOf) {
  form.addEventListener('submit', event => {
    event.preventDefault();
    const data = new FormData(form);
    const key = data.get('key').split('|').map(part => part.trim()).filter(part => part);
    openKey(ruleOf(data), key, 'peek');
  });
}

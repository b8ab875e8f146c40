// Forms: explain a request, and the effect of another limit.
import { optional, request } from './api.js';
import { copyButton, make, number } from './dom.js';

const line = (className, textContent) => make('p', { className, textContent });

// A form whose result is shown below it; with `rule`, that rule comes first.
export function explainForm(form, target, ruleOf = () => null) {
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      const values = name === 'header' ? value.split('\n') : [value];
      values.filter(value => value.trim()).forEach(value => query.append(name, value.trim()));
    }
    try {
      show(target, await request(`/explain?${query}`), ruleOf());
    } catch (error) {
      target.replaceChildren(line('no', error.message));
    }
  });
}

function show(target, explained, rule) {
  if (explained.rejected) {
    target.replaceChildren(line('no', `answered with ${explained.rejected.status}: ${explained.rejected.detail}`));
    return;
  }
  const own = explained.rules.filter(other => other.name === rule);
  const matching = explained.rules.filter(other => other.about && other.name !== rule);
  const others = explained.rules.length - matching.length - own.length;
  target.replaceChildren(
    line(explained.granted ? 'yes' : 'no', explained.granted ? 'Allowed' : `Denied by ${explained.denied_by.join(', ')}`),
    ...own.map(other => line('own', other.text)),
    ...matching.map(other => line('', other.text)),
    line('quiet', `${number(others)} other ${others === 1 ? 'rule does' : 'rules do'} not match`));
}

export function whatIfForm(form, target, ruleOf) {
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const query = new URLSearchParams({ rule: ruleOf(), limit: new FormData(form).get('limit').trim() });
    try {
      const report = await optional(`/what-if?${query}`);
      if (!report) throw new Error('This version of Diana can’t estimate it.');
      target.replaceChildren(...estimate(report));
    } catch (error) {
      target.replaceChildren(line('no', error.message));
    }
  });
}

function estimate(report) {
  const bold = text => make('b', { textContent: text });
  const sentence = make('p', {}, 'In the last minute ', bold(number(report.denied)), ` denied with ${report.now}; with ${report.limit} about `, bold(number(report.would_deny)), '.');
  const rows = report.keys.map(key => make('tr', {}, make('th', { scope: 'row' }, make('bdi', { className: 'key', textContent: key.text })),
    make('td', { className: 'number', textContent: number(key.denied) }), make('td', { className: 'number', textContent: number(key.would_deny) })));
  const head = make('tr', {}, make('th', { scope: 'col', textContent: 'key' }), make('th', { scope: 'col', className: 'number', textContent: 'denied' }), make('th', { scope: 'col', className: 'number', textContent: 'would be denied' }));
  const table = rows.length ? [make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows))] : [];
  const text = make('pre', { textContent: report.shadow_rule || '' });
  const rule = report.shadow_rule ? [make('div', { className: 'row' }, line('', 'To count it exactly, add this shadow rule, which denies nothing:'), copyButton(text)), text] : [];
  return [sentence, ...table, line('quiet', report.note || ''), ...rule];
}

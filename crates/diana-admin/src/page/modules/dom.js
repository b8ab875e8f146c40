// Elements, numbers and times. Texts are set, never parsed as HTML.

export const at = id => document.getElementById(id);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name.includes('-') || name === 'role' || !(name in element)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter(child => child !== undefined && child !== null));
  return element;
}

export const make = (name, properties = {}, ...children) => fill(document.createElement(name), properties, children);

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...children);
  return element;
}

// Sets a text only if it differs, so that a selection survives.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setHidden(element, hidden) {
  if (element.hidden !== hidden) element.hidden = hidden;
}

// Shows items in `parent`, one element each, and reuses elements by key: focus and selection survive. While the pointer
// or the focus is inside, elements keep their places, so that no click hits another one.
export function keyed(parent, items, keyOf, create, update) {
  const isHeld = parent.matches(':hover') || parent.contains(document.activeElement);
  const known = new Map([...parent.children].map(element => [element.dataset.key, element]));
  const elements = items.map(item => {
    const key = keyOf(item);
    let element = known.get(key);
    if (!element) {
      element = create(item);
      element.dataset.key = key;
    }
    known.delete(key);
    update(element, item);
    return element;
  });
  if (isHeld && parent.children.length) {
    parent.append(...elements.filter(element => !element.parentNode));
    return;
  }
  elements.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] || null);
  });
  while (parent.children.length > elements.length) parent.lastChild.remove();
}

// Shows pairs of names and values.
export function list(target, pairs) {
  const present = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  target.replaceChildren(...present.flatMap(([name, value]) => [make('dt', { textContent: name }), make('dd', {}, value)]));
}

export const badge = (text, kind = '') => make('span', { className: `badge ${kind}`, textContent: text });

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const number = count => (count < 100000 ? count.toLocaleString('en', { maximumFractionDigits: 1 }) : compact.format(count));

export function rate(count) {
  if (count === 0) return '0';
  if (count < 0.1) return '<0.1';
  return count < 10 ? String(Math.round(count * 10) / 10) : number(Math.round(count));
}

export function milliseconds(value) {
  if (value === null || value === undefined) return '–';
  if (value >= 1000) return `${number(Math.round(value / 100) / 10)} s`;
  if (value >= 100) return `${Math.round(value)} ms`;
  if (value >= 1) return `${Math.round(value * 10) / 10} ms`;
  return `${Math.round(value * 1000)} µs`;
}

export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${count.toFixed(count < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

export function span(seconds) {
  if (seconds >= 172800) return `${Math.floor(seconds / 86400)} days`;
  if (seconds >= 7200) return `${Math.floor(seconds / 3600)} h`;
  if (seconds >= 120) return `${Math.floor(seconds / 60)} min`;
  return seconds >= 1 ? `${Math.floor(seconds)} s` : `${Math.round(seconds * 1000)} ms`;
}

export const ago = time => span(Math.max(0, (Date.now() - Date.parse(time)) / 1000));

export const clock = (seconds, withSeconds = true) => {
  const options = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', ...(withSeconds ? { second: '2-digit' } : {}) };
  return new Date(seconds * 1000).toLocaleTimeString('en', options);
};

export const sum = counts => counts.reduce((all, count) => all + count, 0);

// A button that copies a text. Without permission to do so, it selects the text instead.
export function copyButton(source) {
  const button = make('button', { type: 'button', className: 'plain small', textContent: 'Copy' });
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return button;
}

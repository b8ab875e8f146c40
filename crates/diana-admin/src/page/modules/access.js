// Who is signed in, and what the role permits. The server decides; this hides what it would deny.
import { optional } from './api.js';
import { at, setHidden, setText } from './dom.js';

let isKnown = false;

// Asks again at the next refresh: after a sign-in, or when the program may have other tokens.
export const forget = () => { isKnown = false; };

export async function load() {
  if (isKnown) return;
  // An older program has no roles.
  const { name, role } = (await optional('/whoami')) || { name: null, role: 'operate' };
  // The style sheet hides elements of the class `operate` from others.
  document.body.dataset.role = role;
  setHidden(at('who'), !name);
  setText(at('who'), name ? `${name}, ${role}` : '');
  at('who').title = role === 'operate' ? 'This token may change keys and reload.' : 'This token may read only.';
  isKnown = true;
}

// Requests to the admin API, with the token of this tab.

let token = sessionStorage.getItem('token') || '';

export const hasToken = () => token !== '';

export function setToken(value) {
  token = value;
  if (value) sessionStorage.setItem('token', value);
  else sessionStorage.removeItem('token');
}

// Throws an error with `status`; without one, the server did not respond.
export async function request(path, post) {
  const options = { headers: token ? { authorization: `Bearer ${token}` } : {}, method: post ? 'POST' : 'GET' };
  if (post) options.body = JSON.stringify(post);
  const response = await fetch(path, options);
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(body.detail || response.statusText), { status: response.status });
  return body;
}

// Paths that this version of the program does not have.
const missing = new Set();

// Like `request`, but returns null if the program does not have the path, or does not know the rule.
export async function optional(path) {
  const name = path.split('?')[0];
  if (missing.has(name)) return null;
  try {
    return await request(path);
  } catch (error) {
    if (error.status !== 404) throw error;
    if (error.message.startsWith('unknown path')) missing.add(name);
    return null;
  }
}

export async function text(path) {
  const response = await fetch(path, { headers: token ? { authorization: `Bearer ${token}` } : {} });
  const body = await response.text();
  const isJson = (response.headers.get('content-type') || '').includes('json');
  return isJson ? JSON.stringify(JSON.parse(body), null, 2) : body;
}

// The web page: sign-in, the two views, and polling once a second while the page is visible.
import * as access from './page/access.js';
import { hasToken, setToken, text } from './page/api.js';
import { at, setHidden, setText } from './page/dom.js';
import * as keys from './page/keys.js';
import * as overview from './page/overview.js';
import * as rule from './page/rule.js';

const POLL_INTERVAL = 1000; // milliseconds
const TYPING = 200; // milliseconds after the last letter of a search
// The step of each span, in seconds: some 200 values for each chart.
const STEPS = { 300: 1, 900: 5, 3600: 20 };

let isPaused = false;
let isSignedOut = false;
let timer;
let running = null;

function currentView() {
  const found = location.hash.match(/^#\/rule\/(.+)$/);
  if (!found) return overview;
  try {
    rule.open(decodeURIComponent(found[1]));
    return rule;
  } catch {
    return overview;
  }
}

async function refreshOnce() {
  const seconds = Number(document.querySelector('input[name="span"]:checked').value);
  try {
    const view = currentView();
    await access.load();
    await view.refresh({ seconds, step: STEPS[seconds] });
    show(view);
    setHidden(at('lost'), true);
    setHidden(at('error'), true);
    isSignedOut = false;
  } catch (error) {
    access.forget();
    showError(error);
  }
}

function show(view) {
  setHidden(at('login'), true);
  setHidden(at('main'), false);
  setHidden(at('controls'), false);
  setHidden(at('sign-out'), !hasToken());
  setHidden(at('overview'), view !== overview);
  setHidden(at('rule-page'), view !== rule);
  document.title = view === rule ? `${at('rule-name').textContent} – Diana` : 'Diana';
}

function showError(error) {
  const isUnauthorized = error.status === 401;
  if (isUnauthorized) signOut(hasToken() ? 'Invalid token' : '');
  else {
    setHidden(at('lost'), error.status !== undefined);
    setHidden(at('error'), error.status === undefined);
    if (error.status !== undefined) setText(at('error'), `Request failed: ${error.message}`);
  }
}

function signOut(message) {
  setToken('');
  access.forget();
  setHidden(at('who'), true);
  isSignedOut = true;
  setHidden(at('main'), true);
  setHidden(at('controls'), true);
  setHidden(at('sign-out'), true);
  setHidden(at('lost'), true);
  setHidden(at('error'), !message);
  setText(at('error'), message);
  if (at('login').hidden) {
    at('login').hidden = false;
    at('token').focus();
  }
}

// Refreshes now; a refresh that runs already is followed by another one.
async function refresh() {
  clearTimeout(timer);
  if (running) await running;
  running = refreshOnce();
  await running;
  running = null;
  clearTimeout(timer);
  timer = setTimeout(poll, POLL_INTERVAL);
}

function poll() {
  if (isPaused || isSignedOut || document.hidden) timer = setTimeout(poll, POLL_INTERVAL);
  else refresh();
}

function route() {
  setHidden(at('main'), false);
  refresh().then(() => {
    scrollTo(0, 0);
    if (!at('rule-page').hidden) at('rule-name').focus({ preventScroll: true });
  });
}

// A link can't send the token, so the script fetches its target and shows it here.
async function showRaw(event) {
  const link = event.target.closest('a');
  if (!hasToken() || !link) return;
  event.preventDefault();
  const path = link.getAttribute('href');
  setText(at('raw-name'), path);
  setText(at('raw-text'), await text(path).catch(error => `Request failed: ${error.message}`));
  at('raw').showModal();
}

function start() {
  overview.start();
  rule.start();
  keys.start();
  at('pause').addEventListener('click', () => {
    isPaused = !isPaused;
    at('pause').setAttribute('aria-pressed', String(isPaused));
    setText(at('pause'), isPaused ? 'Resume' : 'Pause');
    if (!isPaused) refresh();
  });
  at('sign-out').addEventListener('click', () => signOut(''));
  at('login').addEventListener('submit', event => {
    event.preventDefault();
    setToken(at('token').value);
    at('token').value = '';
    refresh();
  });
  at('skip').addEventListener('click', event => {
    event.preventDefault();
    at('main').focus();
  });
  at('links').addEventListener('click', showRaw);
  at('raw-close').addEventListener('click', () => at('raw').close());
  let typing;
  at('find').addEventListener('input', () => {
    overview.searched();
    clearTimeout(typing);
    typing = setTimeout(refresh, TYPING);
  });
  document.querySelectorAll('input[type="radio"]').forEach(radio => radio.addEventListener('change', refresh));
  document.addEventListener('refresh', refresh);
  document.addEventListener('visibilitychange', () => { if (!document.hidden && !isPaused && !isSignedOut) refresh(); });
  addEventListener('hashchange', route);
  refresh();
}

start();

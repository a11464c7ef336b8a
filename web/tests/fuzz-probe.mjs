// The part of the renderer's fuzzer that runs inside the page: times every update and inspects the document.

/** Runs before the page's own scripts. */
export function installProbe() {
  const probe = { received: 0, updates: 0, slowest: 0, violations: [] };
  globalThis.fuzzProbe = probe;
  const note = (milliseconds) => {
    probe.updates++;
    probe.slowest = Math.max(probe.slowest, milliseconds);
  };

  // Frames and timers without a delay become plain tasks, so that the fuzzer does not wait for the display.
  const queue = [];
  const tasks = new MessageChannel();
  const addTask = (task) => {
    queue.push(task);
    tasks.port2.postMessage(undefined);
  };
  tasks.port1.onmessage = () => queue.shift()();
  /** Runs a callback as a task; times it, the rendering in microtasks after it, and the layout. */
  const addUpdate = (callback) =>
    addTask(() => {
      const start = performance.now();
      // The next task comes after the microtasks of this one.
      queue.unshift(() => {
        // Reading a size forces the layout of what was rendered.
        document.body.getBoundingClientRect();
        note(performance.now() - start);
      });
      tasks.port2.postMessage(undefined);
      callback(start);
    });
  const { setTimeout } = globalThis;
  globalThis.requestAnimationFrame = addUpdate;
  globalThis.setTimeout = (callback, delay, ...rest) => (delay ? setTimeout(callback, delay, ...rest) : addUpdate(callback));

  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) note(entry.duration);
  }).observe({ type: 'longtask' });
  globalThis.addEventListener('securitypolicyviolation', (event) => probe.violations.push(`policy: ${event.violatedDirective}`));

  let arrived = () => {};
  globalThis.WebSocket = class extends WebSocket {
    constructor(...address) {
      super(...address);
      this.addEventListener('message', () => {
        probe.received++;
        arrived();
      });
    }
  };

  /** Resolves when the messages have arrived and are shown; returns the times since the last call. */
  probe.settled = async (received) => {
    while (probe.received < received) await new Promise((resolve) => (arrived = resolve));
    // The page plans its update after this listener, and the update may plan further ones.
    do await new Promise(addTask);
    while (queue.length > 0);
    const { updates, slowest } = probe;
    Object.assign(probe, { updates: 0, slowest: 0 });
    return { received: probe.received, updates, slowest };
  };
}

/** Looks for everything that the renderer must not produce; returns the complaints. */
export function inspectPage() {
  const TAGS = new Set(
    (
      'p h1 h2 h3 h4 h5 h6 ul ol li blockquote hr br pre code div span button em strong del a sub sup kbd input ' +
      'table thead tbody tr th td section details summary i'
    ).split(' '),
  );
  const ATTRIBUTES =
    /^(class|href|target|rel|type|align|start|checked|disabled|tabindex|data-turn|data-tool-status|data-outcome|role|open|aria-[a-z]+)$/;
  /** What the page's own forms and diffs have in addition. Rendered Markdown must not have it. */
  const FORM_TAGS = new Set(['form', 'fieldset', 'legend', 'label', 'textarea', 'mark', 'colgroup', 'col', 'dialog']);
  const FORM_ATTRIBUTES =
    /^(id|name|for|value|placeholder|rows|step|autocomplete|spellcheck|inputmode|title|hidden|novalidate|data-response|data-open-request|data-ready|data-changes|data-file)$/;
  /** Classes inside of rendered Markdown; others would let an answer imitate the page. */
  const MARKDOWN_CLASS = /^(code|code-head|copy|table)$/;
  const complaints = [...globalThis.fuzzProbe.violations];
  if (globalThis.harmed !== undefined) complaints.push('a script ran');
  if (!document.querySelector('.turns')) complaints.push('the conversation is gone');
  if (!document.querySelector('.sessions')) complaints.push('the list of sessions is gone');
  for (const element of document.querySelectorAll('body, .scroller, .sessions, .todo, .composer')) {
    if (element.scrollWidth > element.clientWidth) complaints.push(`${element.className || 'the page'} is ${element.scrollWidth} wide`);
  }
  for (const element of document.querySelectorAll('.turns *, .todo, .todo *, .picker *')) {
    // The page's own icons are outside of rendered Markdown.
    const inMarkdown = element.parentElement.closest('.block, .fold-preview') !== null;
    if (!inMarkdown && element.closest('svg')) continue;
    const tag = element.tagName.toLowerCase();
    if (!TAGS.has(tag) && (inMarkdown || !FORM_TAGS.has(tag))) complaints.push(`element ${tag}`);
    for (const name of element.getAttributeNames()) {
      if (!ATTRIBUTES.test(name) && (inMarkdown || !FORM_ATTRIBUTES.test(name))) complaints.push(`attribute ${name} of ${tag}`);
    }
    if (tag === 'a' && !/^(https?:|mailto:)/i.test(element.getAttribute('href') ?? ''))
      complaints.push(`link to ${element.getAttribute('href')}`);
    if (inMarkdown && [...element.classList].some((name) => !MARKDOWN_CLASS.test(name))) complaints.push(`class ${element.className}`);
  }
  return [...new Set(complaints)].slice(0, 10);
}

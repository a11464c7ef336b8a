// The part of the renderer's fuzzer that runs inside the page: times every update and inspects the document.

/** Runs before the page's own scripts. */
export function installProbe() {
  const probe = { received: 0, updates: 0, slowest: 0, violations: [] };
  globalThis.fuzzProbe = probe;
  const note = (milliseconds) => {
    probe.updates++;
    probe.slowest = Math.max(probe.slowest, milliseconds);
  };
  const ends = new MessageChannel();
  ends.port1.onmessage = ({ data: start }) => {
    // Reading a size forces the layout of what was rendered.
    document.body.getBoundingClientRect();
    note(performance.now() - start);
  };
  /** Times a callback together with the rendering in microtasks after it, and the layout. */
  const timed = (callback) => (argument) => {
    const start = performance.now();
    callback(argument);
    ends.port2.postMessage(start);
  };
  const { requestAnimationFrame, setTimeout } = globalThis;
  globalThis.requestAnimationFrame = (callback) => requestAnimationFrame.call(globalThis, timed(callback));
  globalThis.setTimeout = (callback, delay, ...rest) => setTimeout.call(globalThis, delay ? callback : timed(callback), delay, ...rest);
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) note(entry.duration);
  }).observe({ type: 'longtask' });
  globalThis.addEventListener('securitypolicyviolation', (event) => probe.violations.push(`policy: ${event.violatedDirective}`));

  globalThis.WebSocket = class extends WebSocket {
    constructor(...address) {
      super(...address);
      this.addEventListener('message', () => probe.received++);
    }
  };

  /** Resolves when the messages have arrived and the update that shows them is complete; returns the times since the last call. */
  probe.settled = async (received) => {
    while (probe.received < received) await new Promise((resolve) => setTimeout(resolve, 1));
    for (let frame = 0; frame < 2; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
    await new Promise((resolve) => setTimeout(resolve, 0));
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
    /^(class|href|target|rel|type|align|start|checked|disabled|tabindex|data-turn|data-tool-status|role|open|aria-[a-z]+)$/;
  /** Classes inside of rendered Markdown; others would let an answer imitate the page. */
  const MARKDOWN_CLASS = /^(code|code-head|copy|table)$/;
  const complaints = [...globalThis.fuzzProbe.violations];
  if (globalThis.harmed !== undefined) complaints.push('a script ran');
  if (!document.querySelector('.turns')) complaints.push('the conversation is gone');
  if (!document.querySelector('.sessions')) complaints.push('the list of sessions is gone');
  if (document.body.scrollWidth > innerWidth) complaints.push(`the page is ${document.body.scrollWidth} wide`);
  for (const element of document.querySelectorAll('.turns *')) {
    // The page's own icons are outside of rendered Markdown.
    const inMarkdown = element.parentElement.closest('.block, .fold-preview') !== null;
    if (!inMarkdown && element.closest('svg')) continue;
    const tag = element.tagName.toLowerCase();
    if (!TAGS.has(tag)) complaints.push(`element ${tag}`);
    for (const name of element.getAttributeNames()) {
      if (!ATTRIBUTES.test(name)) complaints.push(`attribute ${name} of ${tag}`);
    }
    if (tag === 'a' && !/^(https?:|mailto:)/i.test(element.getAttribute('href') ?? ''))
      complaints.push(`link to ${element.getAttribute('href')}`);
    if (inMarkdown && [...element.classList].some((name) => !MARKDOWN_CLASS.test(name))) complaints.push(`class ${element.className}`);
  }
  return [...new Set(complaints)].slice(0, 10);
}

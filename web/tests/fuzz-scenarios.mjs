// What the fuzzer lets the fake host publish: one turn with hostile content, as a list of updates.

import { chunks, fieldValue, markdown } from './fuzz-inputs.mjs';

/** The updates of one turn; each update is a list of actions that arrive together. */
export function turnUpdates(random, session, chat) {
  const turnId = `turn-${random.below(1e9)}`;
  const inChat = (type, fields) => ({ channel: chat, action: { type, turnId, ...fields } });
  const inSession = (type, fields) => ({ channel: session, action: { type, ...fields } });
  const message = { text: random.chance(0.2) ? markdown(random) : 'Go on', origin: { kind: 'user' } };
  const updates = [[inChat('chat/turnStarted', { startedAt: random.pick([new Date().toISOString(), 'never', '+275760-09-13']), message })]];
  for (let part = 0; part <= random.size(4); part++) updates.push(...partUpdates(random, inChat, `part-${part}`));
  if (random.chance(0.2)) updates.push([inSession('session/titleChanged', { title: fieldValue(random) })]);
  if (random.chance(0.2)) updates.push([inChat('chat/activityChanged', { activity: fieldValue(random) })]);
  if (random.chance(0.2)) updates.push([inChat('chat/usage', { usage: usage(random) })]);
  if (random.chance(0.3)) updates.push([inSession('session/metaChanged', { _meta: sessionMeta(random, chat) })]);
  if (random.chance(0.2)) updates.push([inSession('session/configChanged', { config: { permissionMode: fieldValue(random) } })]);
  // Requests are open only in a running turn.
  if (random.chance(0.7)) updates.push([turnEnd(random, inChat)]);
  return updates;
}

/** Longer texts in a snapshot would measure the JSON parser of the browser. */
const SNAPSHOT_TEXT_CHARACTERS = 30_000;

/** A finished turn as it is in a snapshot. */
export function finishedTurn(random, id) {
  const part = (index) => ({ kind: random.pick(['markdown', 'markdown', 'reasoning']), id: `part-${index}`, content: markdown(random) });
  const toolCall = { status: 'completed', success: true, toolCallId: 't', toolName: 'Read', ...toolFields(random) };
  const turn = {
    id,
    startedAt: new Date().toISOString(),
    duration: 12,
    message: { text: 'Go on', origin: { kind: 'user' } },
    responseParts: [part(0), { kind: 'toolCall', toolCall }, part(1), { kind: 'toolCall' }, null, { kind: fieldValue(random) }],
    usage: usage(random),
    state: 'complete',
  };
  const shorten = (_key, value) => (typeof value === 'string' ? value.slice(0, SNAPSHOT_TEXT_CHARACTERS) : value);
  return JSON.parse(JSON.stringify(turn, shorten));
}

function partUpdates(random, inChat, id) {
  const kind = random.below(12);
  if (kind < 7) return streamedText(random, inChat, id, kind === 6 ? 'reasoning' : 'markdown');
  if (kind < 9) return toolCall(random, inChat, id);
  if (kind < 11) return permissionRequest(random, inChat, id);
  const part = random.pick([
    { kind: 'systemNotification', content: fieldValue(random) },
    { kind: 'contentRef', uri: fieldValue(random) },
    { kind: 'inputRequest', request: { id, message: fieldValue(random), questions: [{ id, message: fieldValue(random) }] } },
    { kind: 'inputRequest' },
    { kind: 'toolCall' },
    { kind: 'toolCall', toolCall: { toolCallId: id, status: fieldValue(random), ...toolFields(random) } },
    { kind: 'markdown', id, content: fieldValue(random) },
    { kind: fieldValue(random) },
  ]);
  return [[inChat('chat/responsePart', { part })]];
}

function streamedText(random, inChat, id, kind) {
  const type = kind === 'markdown' ? 'chat/delta' : 'chat/reasoning';
  const deltas = chunks(random, markdown(random)).map((content) => [inChat(type, { partId: id, content })]);
  return [[inChat('chat/responsePart', { part: { kind, id, content: '' } })], ...deltas];
}

function toolCall(random, inChat, toolCallId) {
  const input = random.pick([
    () => markdown(random),
    () => '['.repeat(3_000) + ']'.repeat(3_000),
    () => JSON.stringify({ path: markdown(random) }),
  ])();
  const deltas = chunks(random, input).map((content) => [inChat('chat/toolCallDelta', { toolCallId, content })]);
  return [
    [inChat('chat/toolCallStart', { toolCallId, toolName: 'Read', displayName: fieldValue(random) })],
    ...deltas,
    [inChat('chat/toolCallReady', { toolCallId, invocationMessage: fieldValue(random), toolInput: input, confirmed: 'not-needed' })],
    [inChat('chat/toolCallComplete', { toolCallId, result: { success: random.chance(0.5), ...toolFields(random) } })],
  ];
}

/** A call that waits for permission, or a plan; in some cases it is decided. */
function permissionRequest(random, inChat, toolCallId) {
  const toolInput = random.pick([
    () => markdown(random),
    () => JSON.stringify({ command: markdown(random), old_string: fieldValue(random), [markdown(random)]: markdown(random) }),
    () => JSON.stringify(Array.from({ length: 30 }, () => markdown(random).slice(0, 200))),
    () => ({ uri: fieldValue(random) }),
    () => '\u202e\u200b'.repeat(20_000),
    () => fieldValue(random),
  ])();
  const rules = random.pick([[fieldValue(random), fieldValue(random)], fieldValue(random)]);
  const permission = random.pick([
    fieldValue(random),
    { layer: fieldValue(random), reason: fieldValue(random), rules, suggestedBy: 'agent' },
  ]);
  const option = () => ({
    id: random.pick(['a', fieldValue(random)]),
    label: fieldValue(random),
    kind: random.pick(['approve', 'deny', 'odd']),
  });
  const ready = {
    toolCallId,
    invocationMessage: fieldValue(random),
    toolInput,
    confirmationTitle: fieldValue(random),
    intention: fieldValue(random),
    editable: random.chance(0.5),
    options: random.pick([undefined, fieldValue(random), Array.from({ length: random.size(30) }, option)]),
    _meta: { 'innkeeper.permission': permission, 'innkeeper.plan': random.chance(0.3) },
  };
  const message = { text: fieldValue(random), origin: { kind: 'user' } };
  const decision = { toolCallId, approved: random.chance(0.5), reasonMessage: fieldValue(random), userSuggestion: message };
  return [
    [inChat('chat/toolCallStart', { toolCallId, toolName: 'Bash', displayName: fieldValue(random) })],
    [inChat('chat/toolCallReady', ready)],
    ...(random.chance(0.3) ? [[inChat('chat/toolCallConfirmed', decision)]] : []),
  ];
}

function sessionMeta(random, chat) {
  const item = () => ({ text: fieldValue(random), status: random.pick(['completed', 'in_progress', fieldValue(random)]) });
  const list = { items: Array.from({ length: random.size(300) }, item), omitted: random.pick([3, fieldValue(random)]) };
  return { 'innkeeper.todo': random.pick([fieldValue(random), { [chat]: random.pick([list, fieldValue(random)]) }]) };
}

function toolFields(random) {
  return {
    displayName: fieldValue(random),
    pastTenseMessage: random.pick([fieldValue(random), { markdown: fieldValue(random) }]),
    content: random.pick([
      [{ type: 'text', text: markdown(random) }],
      [{ type: 'fileEdit', after: { uri: fieldValue(random) }, diff: { added: 1e300 } }],
      [{ type: fieldValue(random), title: fieldValue(random) }],
      fieldValue(random),
    ]),
    error: random.pick([undefined, fieldValue(random), { message: fieldValue(random) }]),
  };
}

function usage(random) {
  const number = () => random.pick([12, 0, -5, 1e300, null, 'many', {}, undefined]);
  return random.pick([null, { inputTokens: number(), outputTokens: number(), cacheReadTokens: number(), model: fieldValue(random) }]);
}

function turnEnd(random, inChat) {
  const duration = random.pick([5, 1e300, -1, 'long', null]);
  if (random.chance(0.8)) return inChat('chat/turnComplete', { duration });
  const error = random.pick([null, { errorType: fieldValue(random), message: fieldValue(random), stack: fieldValue(random) }]);
  return inChat('chat/error', { duration, part: { kind: 'error', error } });
}

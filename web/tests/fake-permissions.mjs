// Permission requests, permission modes and to-do lists of the fake host.

/** The options of a permission request. */
export const OPTIONS = [
  { id: 'allow-once', label: 'Allow once', kind: 'approve' },
  { id: 'allow-session', label: 'Allow for this session', kind: 'approve' },
  { id: 'allow-workspace', label: 'Always allow in this workspace', kind: 'approve' },
  { id: 'deny', label: 'Deny', kind: 'deny' },
];

const PLAN_OPTIONS = [
  { id: 'approve', label: 'Approve', kind: 'approve' },
  { id: 'approve-accept-edits', label: 'Approve and accept edits', kind: 'approve' },
  { id: 'keep-planning', label: 'Keep planning', kind: 'deny' },
];

const MODES = [
  ['default', 'Ask first', 'Reads freely, asks before it changes files or runs commands.'],
  ['acceptEdits', 'Accept edits', 'Changes files in the workspace without asking; asks before it runs commands.'],
  ['plan', 'Plan', 'Reads and writes a plan; changes nothing until you approve the plan.'],
  ['bypassPermissions', 'Bypass permissions', 'Never asks. Denied rules still hold.'],
];

/** The configuration of a new session. */
export function sessionConfig(values = {}) {
  const permissionMode = {
    type: 'string',
    title: 'Permission mode',
    description: 'When the agent asks before it acts.',
    enum: MODES.map(([id]) => id),
    enumLabels: MODES.map(([, label]) => label),
    enumDescriptions: MODES.map(([, , description]) => description),
    default: 'default',
    sessionMutable: true,
  };
  return { schema: { type: 'object', properties: { permissionMode } }, values: { permissionMode: 'default', ...values } };
}

/** Starts a call that waits for permission; `publish` sends its actions. */
export function requestPermission(call, toolCallId, publish, edits) {
  const { toolName, displayName = toolName, title, message, input, editable, intention, meta, plan } = call;
  const identity = { toolCallId, toolName, displayName };
  publish('chat/toolCallStart', identity);
  const request = {
    invocationMessage: { markdown: message },
    toolInput: input,
    confirmationTitle: title,
    options: call.options ?? (plan ? PLAN_OPTIONS : OPTIONS),
    ...(editable === undefined ? {} : { editable }),
    ...(intention === undefined ? {} : { intention }),
    ...(call.edits ? { edits: { items: call.edits.map((edit) => edits.fileEdit(edit)) } } : {}),
    _meta: plan ? { 'innkeeper.plan': true } : { 'innkeeper.permission': meta ?? {} },
  };
  publish('chat/toolCallReady', { toolCallId, ...structuredClone(request) });
  return { ...identity, ...request, status: 'pending-confirmation' };
}

/** The call after the decision of a client. */
export function decidedCall(call, action) {
  const { confirmationTitle, editable, edits, options, ...rest } = call;
  const selectedOption = options.find((option) => option.id === action.selectedOptionId);
  const chosen = selectedOption ? { selectedOption } : {};
  if (action.approved) {
    const toolInput = action.editedToolInput ?? call.toolInput;
    return { ...rest, ...chosen, toolInput, status: 'running', confirmed: action.confirmed };
  }
  const { reasonMessage, userSuggestion } = action;
  return {
    ...rest,
    ...chosen,
    status: 'cancelled',
    reason: action.reason,
    ...(reasonMessage ? { reasonMessage } : {}),
    ...(userSuggestion ? { userSuggestion } : {}),
  };
}

/** Why a decision is refused; undefined if it is accepted. */
export function decisionRefusal(chat, action) {
  return pendingPart(chat, action.toolCallId) && chat.activeTurn.id === action.turnId
    ? undefined
    : 'This tool call does not wait for approval';
}

export function pendingPart(chat, toolCallId) {
  const isPending = ({ toolCall }) => toolCall?.toolCallId === toolCallId && toolCall.status === 'pending-confirmation';
  return chat.activeTurn?.responseParts.find(isPending);
}

export function hasPendingPart(chat) {
  return chat.activeTurn?.responseParts.some(({ toolCall }) => toolCall?.status === 'pending-confirmation') ?? false;
}

/** The part of a to-do list that the row of a session shows. */
export function todoProgress(items) {
  return { done: items.filter((item) => item.status === 'completed').length, total: items.length };
}

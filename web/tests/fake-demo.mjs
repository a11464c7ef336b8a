// The answers of the fake host: the steps of a `#demo` script that the page's tests need, and to `hi`
// an answer that has one of everything, to look at.

import { setTimeout } from 'node:timers/promises';

const TOUR = `This is the **fake host** that the page is developed with. It speaks just enough of the protocol to show every kind of part.

## What it can do

1. Stream text, a few characters at a time
2. Think, which stays folded
3. Run a tool that does nothing, such as \`ls -l\`

\`\`\`rust
fn main() {
    println!("A lantern in the window, and a bed for the night.");
}
\`\`\`

| step | what it does | time |
|------|--------------|-----:|
| text | says something | 2 ms |
| wait | says nothing for a while | 250 ms |

> A link to [an example](https://example.com), and raw HTML such as <b>this</b> is shown as text.
`;

/** The steps that answer a message. */
export function answerSteps({ text, origin }) {
  if (origin.kind === 'systemNotification') return [{ step: 'text', words: 'I have seen that.' }];
  if (text === 'hi') {
    return [
      { step: 'think', words: 'The guest said something.\nA short tour of what the page can show is a good answer.' },
      { step: 'tool', words: 'Bash {"command":"ls -l","description":"List files"}' },
      { step: 'chunk', words: '7' },
      { step: 'text', words: TOUR },
    ];
  }
  if (!text.startsWith('#demo')) return [{ step: 'text', words: `You said: ${text}` }];
  return text
    .split('\n')
    .slice(1)
    .map((line) => /^(\S+)\s*(.*)$/.exec(line.trim()))
    .filter((match) => match !== null)
    .map((match) => ({ step: match[1], words: match[2] }));
}

/** Plays the steps into a turn; gives an error part if the script asks for one. Between steps, steering is taken. */
export async function play(steps, turn, signal) {
  let chunk = 12;
  for (const { step, words } of steps) {
    if (signal.aborted) return undefined;
    turn.takeSteering();
    if (step === 'chunk') chunk = Number(words);
    else if (step === 'wait') await pause(Number(words), signal);
    else if (step === 'text') await stream(turn, 'markdown', words, chunk, signal);
    else if (step === 'think') await stream(turn, 'reasoning', words, chunk, signal);
    else if (step === 'tool') await runTool(turn, words, signal);
    else if (step === 'ask') await turn.ask(JSON.parse(words));
    else if (step === 'permit') await turn.confirm([JSON.parse(words)].flat());
    else if (step === 'called') addResult(turn, JSON.parse(words));
    else if (step === 'edit') addResult(turn, turn.edit(JSON.parse(words)));
    else if (step === 'todo') turn.todo(JSON.parse(words));
    else if (step === 'activity') turn.activity(words || undefined);
    else if (step === 'restart') turn.restart();
    else if (step === 'command') await runCommand(turn, JSON.parse(words), signal);
    else if (step === 'background') turn.background(JSON.parse(words));
    else if (step === 'fail') return { kind: 'error', ...JSON.parse(words) };
    else if (step === 'error') return demoError(words);
  }
  if (signal.aborted) return undefined;
  const usage = { inputTokens: 1234, outputTokens: 56, cacheReadTokens: 1000, model: 'claude-demo' };
  turn.active.usage = usage;
  turn.publish('chat/usage', { usage });
  return undefined;
}

function demoError(words) {
  return { kind: 'error', error: { errorType: 'api_error', message: `The demo model was asked for an error: ${words}` } };
}

/** A command that runs until its time is over or it is stopped. */
async function runCommand(turn, { command, ms }, signal) {
  const toolCallId = `tool-${turn.parts.length}`;
  const call = { toolCallId, toolName: 'Bash', displayName: 'Run command', status: 'streaming' };
  const part = { kind: 'toolCall', toolCall: call };
  turn.parts.push(part);
  turn.publish('chat/toolCallStart', { toolCallId, toolName: call.toolName, displayName: call.displayName });
  const ready = { invocationMessage: { markdown: `Run \`${command}\`` }, toolInput: command, confirmed: 'not-needed' };
  part.toolCall = { ...call, ...ready, status: 'running' };
  turn.publish('chat/toolCallReady', { toolCallId, ...ready });
  const stopped = new AbortController();
  turn.commands.set(toolCallId, { label: command, stop: () => stopped.abort() });
  await pause(ms, AbortSignal.any([signal, stopped.signal]));
  turn.commands.delete(toolCallId);
  if (signal.aborted) return;
  const wasStopped = stopped.signal.aborted;
  const content = [{ type: 'text', text: wasStopped ? 'Stopped by a user.' : 'It ran.' }];
  const result = { success: !wasStopped, pastTenseMessage: `Ran \`${command}\``, content };
  part.toolCall = { ...part.toolCall, ...result, status: 'completed' };
  turn.publish('chat/toolCallComplete', { toolCallId, result });
}

async function stream(turn, kind, text, chunk, signal) {
  const part = { kind, id: `part-${turn.parts.length}`, content: '' };
  turn.parts.push(part);
  turn.publish('chat/responsePart', { part: { ...part } });
  for (let start = 0; start < text.length; start += chunk) {
    if (signal.aborted) return;
    const content = text.slice(start, start + chunk);
    part.content += content;
    turn.publish(kind === 'markdown' ? 'chat/delta' : 'chat/reasoning', { partId: part.id, content });
    await pause(4, signal);
  }
}

async function runTool(turn, words, signal) {
  const [, toolName, input] = /^(\S+)\s*(.*)$/.exec(words);
  const toolCallId = `tool-${turn.parts.length}`;
  const call = { toolCallId, toolName, displayName: toolName, status: 'streaming' };
  const part = { kind: 'toolCall', toolCall: call };
  turn.parts.push(part);
  turn.publish('chat/toolCallStart', { toolCallId, toolName, displayName: toolName });
  const ready = { invocationMessage: `Run \`${toolName}\``, toolInput: input, confirmed: 'not-needed' };
  part.toolCall = { ...call, ...ready, status: 'running' };
  turn.publish('chat/toolCallReady', { toolCallId, ...ready });
  await pause(120, signal);
  if (signal.aborted) return;
  const content = [{ type: 'text', text: 'total 1\n-rw-r--r-- 1 guest guest 42 README.md' }];
  const result = { success: true, pastTenseMessage: `Ran \`${toolName}\``, content };
  part.toolCall = { ...part.toolCall, ...result, status: 'completed' };
  turn.publish('chat/toolCallComplete', { toolCallId, result });
}

/** Adds a call that is over, with the given result. */
function addResult(turn, { toolName, message, result }) {
  const toolCallId = `tool-${turn.parts.length}`;
  const call = { toolCallId, toolName, displayName: toolName };
  const ready = { invocationMessage: message, toolInput: '{}', confirmed: 'not-needed' };
  turn.publish('chat/toolCallStart', call);
  turn.publish('chat/toolCallReady', { toolCallId, ...ready });
  turn.publish('chat/toolCallComplete', { toolCallId, result });
  turn.parts.push({ kind: 'toolCall', toolCall: { ...call, ...ready, ...result, status: 'completed' } });
}

/** Waits, or stops waiting when the turn is stopped. */
async function pause(milliseconds, signal) {
  try {
    await setTimeout(milliseconds, undefined, { signal });
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
  }
}

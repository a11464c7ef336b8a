// The queue, steering, background work, stop requests and errors of the fake host.

/** The requests that the fake host offers in addition to the protocol. */
export const METHODS = ['innkeeper/stop', 'innkeeper/restartAgent'];

export class FakeTurns {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** Why an action about waiting messages is refused; undefined if it is accepted, null if it is about something else. */
  refusal(chat, action) {
    switch (action.type) {
      case 'chat/pendingMessageSet':
      case 'chat/queuedMessagesReordered':
      case 'chat/draftChanged':
        return undefined;
      case 'chat/pendingMessageRemoved':
        return isWaiting(chat, action) ? undefined : 'There is no waiting message with this id';
      case 'chat/turnResume':
        return isResumable(chat, action.turnId) ? undefined : 'This turn cannot be resumed';
      default:
        return null;
    }
  }

  /** Applies an accepted action of a client; returns false if it is about something else. */
  apply(session, action, origin) {
    const { chat } = session;
    switch (action.type) {
      case 'chat/pendingMessageSet':
        setMessage(chat, action);
        session.held = false;
        break;
      case 'chat/pendingMessageRemoved':
        removeMessage(chat, action.id);
        break;
      case 'chat/queuedMessagesReordered':
        if (chat.queuedMessages) chat.queuedMessages = ordered(chat.queuedMessages, action.order);
        session.held = false;
        break;
      case 'chat/draftChanged':
        if (action.draft) chat.draft = action.draft;
        else delete chat.draft;
        break;
      case 'chat/turnResume':
        this.#resume(session, action, origin);
        return true;
      default:
        return false;
    }
    this.#host.publish(chat.resource, action, origin);
    this.next(session);
    return true;
  }

  /** Starts the next waiting message if nothing runs and the queue is not held. */
  next(session) {
    const { chat } = session;
    if (chat.activeTurn || session.held) return;
    const next = chat.steeringMessage ?? chat.queuedMessages?.[0];
    if (!next) return;
    removeMessage(chat, next.id);
    const startedAt = new Date().toISOString();
    const turnId = `${next.id}-${chat.turns.length}`;
    this.#host.startTurn(session, { type: 'chat/turnStarted', turnId, startedAt, message: next.message, queuedMessageId: next.id });
  }

  /** A turn has ended. After a stop a steering message is the first of the queue. */
  ended(session, action) {
    const { chat } = session;
    session.held = action.type === 'chat/turnCancelled' || action.part?.resumable === true;
    const steering = chat.steeringMessage;
    if (action.type === 'chat/turnCancelled' && steering) {
      const { id, message } = steering;
      const order = [id, ...(chat.queuedMessages ?? []).map((each) => each.id)];
      delete chat.steeringMessage;
      chat.queuedMessages = [{ id, message }, ...(chat.queuedMessages ?? [])];
      this.#host.publish(chat.resource, { type: 'chat/pendingMessageRemoved', kind: 'steering', id });
      this.#host.publish(chat.resource, { type: 'chat/pendingMessageSet', kind: 'queued', id, message });
      this.#host.publish(chat.resource, { type: 'chat/queuedMessagesReordered', order });
    }
    this.next(session);
  }

  /** The agent takes a waiting steering message into the running turn. */
  takeSteering(session) {
    const { chat } = session;
    const taken = chat.steeringMessage;
    if (!taken) return;
    const attachments = taken.message.attachments?.length;
    const steering = { id: taken.id, ...(attachments ? { attachments } : {}) };
    const part = { kind: 'systemNotification', content: taken.message.text, _meta: { 'innkeeper.steering': steering } };
    chat.activeTurn.responseParts.push(part);
    this.#host.publish(chat.resource, { type: 'chat/responsePart', turnId: chat.activeTurn.id, part: structuredClone(part) });
    delete chat.steeringMessage;
    this.#host.publish(chat.resource, { type: 'chat/pendingMessageRemoved', kind: 'steering', id: taken.id });
  }

  setWork(session, work) {
    const full = { kind: 'shell', label: work.command, startedAt: new Date().toISOString(), ...work };
    const others = (session.chat.backgroundWork ?? []).filter((each) => each.id !== full.id);
    session.chat.backgroundWork = [...others, full];
    this.#host.publish(session.chat.resource, { type: 'chat/backgroundWorkSet', work: full });
  }

  /** Background work has ended, which starts a turn about it. */
  endWork(session, id, status) {
    const work = this.#removeWork(session, id);
    const kind = work.kind === 'subagent' ? 'subagent' : 'command';
    const message = {
      text: `${work.label} has ended: ${status}`,
      origin: { kind: 'systemNotification' },
      _meta: { 'innkeeper.work': { id, kind, label: work.label, status } },
    };
    const startedAt = new Date().toISOString();
    this.#host.startTurn(session, { type: 'chat/turnStarted', turnId: `background-${id}`, startedAt, message });
  }

  #removeWork(session, id) {
    const work = session.chat.backgroundWork?.find((each) => each.id === id);
    if (!work) return undefined;
    session.chat.backgroundWork = session.chat.backgroundWork.filter((each) => each !== work);
    this.#host.publish(session.chat.resource, { type: 'chat/backgroundWorkRemoved', id });
    return work;
  }

  /** The request `innkeeper/stop`; undefined if there is nothing with this id. */
  stop(session, what) {
    const { chat } = session;
    if (what === 'all') return { stopped: [...this.#stopTurn(session), ...this.#stopWork(session)] };
    if (what.workId !== undefined) {
      const work = this.#removeWork(session, what.workId);
      return work && { stopped: [{ kind: kindOf(work), label: work.label }] };
    }
    const call = session.commands?.get(what.toolCallId);
    if (!call || !chat.activeTurn) return undefined;
    call.stop();
    return { stopped: [{ kind: 'command', label: call.label }] };
  }

  #stopTurn(session) {
    const turn = session.chat.activeTurn;
    if (!turn) return [];
    this.#host.endTurn(session, { type: 'chat/turnCancelled', turnId: turn.id, duration: 1 }, 'cancelled');
    return [{ kind: 'turn', label: turn.message.text.split('\n')[0] }];
  }

  #stopWork(session) {
    const work = session.chat.backgroundWork ?? [];
    for (const each of work) this.#removeWork(session, each.id);
    return work.map((each) => ({ kind: kindOf(each), label: each.label }));
  }

  /** The request `innkeeper/restartAgent`. */
  restart(session) {
    this.#stopWork(session);
    const turn = session.chat.activeTurn;
    if (!turn) return {};
    const error = { errorType: 'agent_restarted', message: 'Claude was restarted. Resume the turn, or send a message.' };
    const part = { kind: 'error', error, resumable: true };
    this.#host.endTurn(session, { type: 'chat/error', turnId: turn.id, duration: 1, part }, 'error');
    return {};
  }

  #resume(session, action, origin) {
    const { chat } = session;
    const { state, duration, ...turn } = chat.turns.at(-1);
    chat.turns = chat.turns.slice(0, -1);
    chat.activeTurn = turn;
    chat.status = 8;
    session.held = false;
    this.#host.publish(chat.resource, action, origin);
    this.#host.answer(session, [{ step: 'text', words: 'The turn goes on.' }]);
  }
}

function kindOf(work) {
  return work.kind === 'subagent' ? 'subagent' : 'command';
}

function setMessage(chat, { kind, id, message }) {
  if (kind === 'steering') {
    chat.steeringMessage = { id, message };
    return;
  }
  const queued = chat.queuedMessages ?? [];
  const index = queued.findIndex((each) => each.id === id);
  chat.queuedMessages = index < 0 ? [...queued, { id, message }] : queued.with(index, { id, message });
}

function removeMessage(chat, id) {
  if (chat.steeringMessage?.id === id) delete chat.steeringMessage;
  const kept = (chat.queuedMessages ?? []).filter((each) => each.id !== id);
  if (kept.length > 0) chat.queuedMessages = kept;
  else delete chat.queuedMessages;
}

function ordered(queued, order) {
  const named = order.flatMap((id) => queued.find((each) => each.id === id) ?? []);
  return [...named, ...queued.filter((each) => !order.includes(each.id))];
}

function isWaiting(chat, { kind, id }) {
  return kind === 'steering' ? chat.steeringMessage?.id === id : (chat.queuedMessages ?? []).some((each) => each.id === id);
}

function isResumable(chat, turnId) {
  const last = chat.turns.at(-1);
  return !chat.activeTurn && last?.id === turnId && last.responseParts.at(-1)?.resumable === true;
}

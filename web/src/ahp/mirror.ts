// The page's copy of the channels it is subscribed to: snapshot plus every later action, each exactly once.
// Does not communicate with the host and does not use signals.

import { reduceChangeset } from './changeset-reducer';
import type { ChangesetState } from './changeset-types';
import { reduceChat, reduceRoot, reduceSession } from './reducer';
import {
  type Action,
  type ActionEnvelope,
  type ChatState,
  ROOT,
  type RootState,
  type SessionState,
  type Snapshot,
  type Uri,
} from './types';

type ChannelState = RootState | SessionState | ChatState | ChangesetState;

interface Channel {
  state: ChannelState;
  /** The newest sequence number that is contained in the state. */
  seq: number;
}

export class Mirror {
  #channels = new Map<Uri, Channel>();

  channels(): Uri[] {
    return [...this.#channels.keys()];
  }

  root(): RootState | undefined {
    return this.#channels.get(ROOT)?.state as RootState | undefined;
  }

  session(channel: Uri): SessionState | undefined {
    return this.#channels.get(channel)?.state as SessionState | undefined;
  }

  chat(channel: Uri): ChatState | undefined {
    return this.#channels.get(channel)?.state as ChatState | undefined;
  }

  changeset(channel: Uri): ChangesetState | undefined {
    return this.#channels.get(channel)?.state as ChangesetState | undefined;
  }

  /** Replaces the state of a channel by a snapshot. */
  load(snapshot: Snapshot): void {
    if (typeof snapshot.state !== 'object' || snapshot.state === null) return;
    this.#channels.set(snapshot.resource, { state: snapshot.state as ChannelState, seq: snapshot.fromSeq });
  }

  drop(channel: Uri): void {
    this.#channels.delete(channel);
  }

  /** Applies an envelope; returns false if it changes nothing: not subscribed, already applied, or rejected. */
  apply(envelope: ActionEnvelope): boolean {
    const channel = this.#channels.get(envelope.channel);
    if (!channel || envelope.serverSeq <= channel.seq) return false;
    channel.seq = envelope.serverSeq;
    if (envelope.rejectionReason !== undefined) return false;
    const before = channel.state;
    channel.state = reduce(before, envelope.action);
    return channel.state !== before;
  }
}

function reduce(state: ChannelState, action: Action): ChannelState {
  try {
    if (action.type.startsWith('root/')) return reduceRoot(state as RootState, action);
    if (action.type.startsWith('session/')) return reduceSession(state as SessionState, action);
    if (action.type.startsWith('chat/')) return reduceChat(state as ChatState, action);
    if (action.type.startsWith('changeset/')) return reduceChangeset(state as ChangesetState, action);
  } catch (error) {
    // A malformed action is dropped; the page continues.
    console.warn(`innkeeper: action ${action.type} was ignored`, error);
  }
  return state;
}

// The model for the next message of each chat: what was chosen here, or else what the chat uses already.

import { computed, type ReadonlySignal, signal } from '@preact/signals';

import type { AgentInfo, ChatState, Message, ModelSelection, Uri } from '../ahp/types';
import { asSelection, chatModel, isSameModel, type ModelSetting, modelSetting, selectionOf } from '../model-setting';
import { NEW } from './drafts';
import type { OutgoingMessage } from './outgoing';

export interface ModelChoiceOptions {
  /** The agent of the shown session, or of the next new one. */
  agent(): AgentInfo | undefined;
  selected: ReadonlySignal<Uri | undefined>;
  chat: ReadonlySignal<ChatState | undefined>;
  outgoing: ReadonlySignal<readonly OutgoingMessage[]>;
}

export class ModelChoice {
  readonly #options: ModelChoiceOptions;
  /** The choices that no message has been sent with, by session. */
  readonly #chosen = signal<ReadonlyMap<Uri, ModelSelection>>(new Map());
  /** The model that each chat used when it was last shown, by session. */
  readonly #used = new Map<Uri, ModelSelection | undefined>();

  /** The model of the shown chat as JSON, which changes more rarely than the chat. */
  readonly #chatModel = computed(() => JSON.stringify(chatModel(this.#options.chat.value) ?? null));

  constructor(options: ModelChoiceOptions) {
    this.#options = options;
  }

  /** The choice for the next message of a session, or of a new one. */
  chosen(session: Uri | undefined): ModelSelection | undefined {
    return this.#chosen.value.get(session ?? NEW);
  }

  choose(session: Uri | undefined, selection: ModelSelection | undefined): void {
    const chosen = new Map(this.#chosen.value);
    if (selection) chosen.set(session ?? NEW, selection);
    else chosen.delete(session ?? NEW);
    this.#chosen.value = chosen;
  }

  /** The models of the shown chat, with the one that the next message uses. Reads signals. */
  setting(): ModelSetting | undefined {
    const session = this.#options.selected.value;
    const sent = this.#options.outgoing.value.findLast((each) => each.session === session && each.message.model);
    const selection = this.chosen(session) ?? asSelection(sent?.message.model) ?? asSelection(JSON.parse(this.#chatModel.value));
    return modelSetting(this.#options.agent(), selection);
  }

  /**
   * Takes the choice into a message. A message without a choice keeps its own model or uses the chat's, unless the host no
   * longer offers that one.
   */
  take(session: Uri | undefined, message: Message): Message {
    const chosen = this.chosen(session);
    const own = chosen ?? asSelection(message.model);
    const setting = own ? modelSetting(this.#options.agent(), own) : this.setting();
    if (chosen) this.choose(session, undefined);
    const isReplaced = setting?.unlisted !== undefined && !setting.isPartial;
    const model = isReplaced ? selectionOf(setting.current, undefined) : chosen;
    return model ? { ...message, model } : message;
  }

  /** Makes the model of a message that was not sent the choice again. */
  giveBack(session: Uri | undefined, { model }: Message): void {
    const selection = asSelection(model);
    if (selection && !this.chosen(session)) this.choose(session, selection);
  }

  /** Called when the shown chat changes; returns whether another client changed its model, which ends the choice here. */
  look(session: Uri, chat: ChatState): boolean {
    // Own messages change the chat's model without ending a later choice.
    if (this.#options.outgoing.value.some((each) => each.session === session)) {
      this.#used.delete(session);
      return false;
    }
    const model = chatModel(chat);
    const isChanged = this.#used.has(session) && !isSameModel(this.#used.get(session), model);
    this.#used.set(session, model);
    return isChanged && this.chosen(session) !== undefined;
  }

  forget(session: Uri): void {
    this.#used.delete(session);
    this.choose(session, undefined);
  }
}

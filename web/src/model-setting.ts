// The models that the host offers for an agent, and the one that a chat uses. The values may be anything: what does not
// match is absent.

import type { AgentInfo, ChatState, ModelSelection } from './ahp/types';
import { isCount, oneLine } from './format';

/** The property of a model's configuration that has the effort levels. */
const EFFORT_KEY = 'thinkingLevel';
const MAX_MODELS = 200;
const MAX_EFFORTS = 20;

export interface Effort {
  id: string;
  label: string;
}

export interface Model {
  id: string;
  name: string;
  /** Multiplier, context window and limits, as short text. */
  detail: string;
  /** Whether the host's policy forbids the model. */
  isDisabled: boolean;
  efforts: readonly Effort[];
  defaultEffort: string | undefined;
}

export interface ModelSetting {
  models: readonly Model[];
  /** The model that the next message uses. */
  current: Model;
  /** The effort of the current model; undefined if the model has none or the agent decides. */
  effort: Effort | undefined;
  /** The id of the selected model, if the host does not list it. */
  unlisted: string | undefined;
  /** Whether the list is too short to say that a missing model is no longer offered. */
  isPartial: boolean;
}

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** The setting of an agent's models; undefined if the host lists no models. */
export function modelSetting(agent: AgentInfo | undefined, selection: ModelSelection | undefined): ModelSetting | undefined {
  const models = (Array.isArray(agent?.models) ? agent.models : []).slice(0, MAX_MODELS).flatMap(modelOf);
  const [first] = models;
  if (!first) return undefined;
  const listed = models.find((model) => model.id === selection?.id);
  const unlisted = selection === undefined || listed ? undefined : selection.id;
  // Without an answer of the model service, the host lists only its default.
  const isPartial = models.length === 1;
  const current = listed ?? (unlisted !== undefined && isPartial ? unknownModel(unlisted) : first);
  const wanted = listed && effortOf(selection);
  const effort = current.efforts.find((each) => each.id === wanted) ?? current.efforts.find((each) => each.id === current.defaultEffort);
  return { models, current, effort, unlisted, isPartial };
}

/** The selection of a model, with an effort level that it has: the wanted one, or else its default. */
export function selectionOf(model: Model, effort: string | undefined): ModelSelection {
  const level = model.efforts.some((each) => each.id === effort) ? effort : model.defaultEffort;
  return level === undefined ? { id: model.id } : { id: model.id, config: { [EFFORT_KEY]: level } };
}

/** The model of the newest message of a chat. A message without a model uses the one before it. */
export function chatModel(chat: ChatState | undefined): ModelSelection | undefined {
  const waiting = chat?.queuedMessages?.findLast(({ message }) => asSelection(message?.model));
  const running = asSelection(chat?.activeTurn?.message?.model);
  if (waiting || running) return asSelection(waiting?.message.model) ?? running;
  return asSelection(chat?.turns.findLast(({ message }) => asSelection(message?.model))?.message.model);
}

/** A selection as received. */
export function asSelection(value: unknown): ModelSelection | undefined {
  if (typeof value !== 'object' || value === null || !('id' in value) || typeof value.id !== 'string') return undefined;
  const effort = effortOf(value as ModelSelection);
  return effort === undefined ? { id: value.id } : { id: value.id, config: { [EFFORT_KEY]: effort } };
}

/** Whether two selections have the same model and effort. */
export function isSameModel(one: ModelSelection | undefined, other: ModelSelection | undefined): boolean {
  return one?.id === other?.id && effortOf(one) === effortOf(other);
}

/** Why the next message does not use the selected model; undefined if it does. */
export function unlistedHint({ unlisted, isPartial, current }: ModelSetting): string | undefined {
  if (unlisted === undefined) return undefined;
  const name = oneLine(unlisted);
  if (isPartial) return `The host cannot list its models now. The next message uses ${name}.`;
  return `${name} is no longer offered. The next message uses ${current.name}.`;
}

function effortOf(selection: ModelSelection | undefined): string | undefined {
  const level = selection?.config?.[EFFORT_KEY];
  return typeof level === 'string' ? level : undefined;
}

function modelOf(info: AgentInfo['models'][number]): Model[] {
  if (typeof info?.id !== 'string') return [];
  const property = info.configSchema?.properties?.[EFFORT_KEY];
  const values: unknown[] = Array.isArray(property?.enum) ? property.enum.slice(0, MAX_EFFORTS) : [];
  const efforts = values.flatMap((id, index): Effort[] =>
    typeof id === 'string' ? [{ id, label: oneLine(property?.enumLabels?.[index]) || oneLine(id) }] : [],
  );
  const defaultEffort = efforts.find(({ id }) => id === property?.default)?.id;
  const isDisabled = info.policyState === 'disabled';
  return [
    { id: info.id, name: oneLine(info.name) || oneLine(info.id), detail: detailOf(info, isDisabled), isDisabled, efforts, defaultEffort },
  ];
}

function detailOf({ maxContextWindow, supportsVision, _meta }: AgentInfo['models'][number], isDisabled: boolean): string {
  const multiplier = _meta?.['multiplierNumeric'];
  const words = [
    isDisabled ? 'not enabled for your account' : '',
    isCount(multiplier) ? `${Number(multiplier.toFixed(2))}×` : '',
    isCount(maxContextWindow) && maxContextWindow > 0 ? `${compact.format(maxContextWindow)} tokens of context` : '',
    supportsVision === false ? 'no images' : '',
  ];
  return words.filter(Boolean).join(' · ');
}

function unknownModel(id: string): Model {
  return { id, name: oneLine(id), detail: '', isDisabled: false, efforts: [], defaultEffort: undefined };
}

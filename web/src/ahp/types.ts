// The part of the Agent Host Protocol that the page reads and writes, as it is on the wire.
// Unknown fields are kept by spreading; unknown kinds of parts and actions are ordinary values.

import type { Changeset, ChangesSummary, FileEdit, FileEditSide } from './changeset-types';

export type Uri = string;
export type Markdownish = string | { markdown: string };

export const ROOT: Uri = 'ahp-root://';

/** Bits of a session's or chat's `status`. The low five bits are one activity, the others are flags. */
export const Status = {
  Idle: 1,
  Error: 2,
  InProgress: 8,
  InputNeeded: 24,
  IsRead: 32,
  IsArchived: 64,
  ActivityMask: 31,
} as const;

export interface ErrorInfo {
  errorType: string;
  message: string;
  stack?: string;
}

export interface ModelInfo {
  id: string;
  name: string;
  maxContextWindow?: number;
  supportsVision?: boolean;
  policyState?: string;
  /** The form of a selection's `config`. */
  configSchema?: { properties?: Record<string, ConfigProperty> };
  _meta?: Record<string, unknown>;
}

/** The model that a message is for. */
export interface ModelSelection {
  id: string;
  config?: Record<string, unknown>;
}

export interface AgentInfo {
  provider: string;
  displayName: string;
  description: string;
  models: ModelInfo[];
}

export interface RootState {
  agents: AgentInfo[];
  activeSessions?: number;
}

export interface ChatSummary {
  resource: Uri;
  title: string;
  status: number;
  activity?: string;
  modifiedAt?: string;
  changes?: ChangesSummary;
}

export interface SessionSummary {
  resource: Uri;
  provider: string;
  title: string;
  status: number;
  activity?: string | null;
  createdAt: string;
  modifiedAt: string;
  workingDirectories?: Uri[];
  defaultChat?: Uri;
  changes?: ChangesSummary;
  _meta?: Record<string, unknown>;
}

/** The description of one setting of a session. */
export interface ConfigProperty {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  enumLabels?: string[];
  enumDescriptions?: string[];
  readOnly?: boolean;
  sessionMutable?: boolean;
}

export interface SessionConfig {
  schema: { properties: Record<string, ConfigProperty> };
  values: Record<string, unknown>;
}

export interface ActiveClient {
  clientId: string;
  displayName?: string;
}

export interface SessionState {
  provider: string;
  title: string;
  status: number;
  activity?: string;
  workingDirectories?: Uri[];
  lifecycle: 'creating' | 'ready' | 'failed';
  creationError?: ErrorInfo;
  chats: ChatSummary[];
  defaultChat?: Uri;
  activeClients?: ActiveClient[];
  config?: SessionConfig;
  changesets?: Changeset[];
  _meta?: Record<string, unknown>;
}

/** A file whose content is in the message, as base64. */
export interface EmbeddedAttachment {
  type: 'embeddedResource';
  label: string;
  contentType: string;
  data: string;
}

export interface Message {
  text: string;
  origin: { kind: string };
  attachments?: unknown[];
  model?: ModelSelection;
  _meta?: Record<string, unknown>;
}

/** A message that waits for its turn, or for the running one. */
export interface PendingMessage {
  id: string;
  message: Message;
}

/** A steering message goes into the running turn; a queued one starts a turn of its own. */
export type PendingKind = 'steering' | 'queued';

/** Work of the agent that goes on independently of turns: a command or a subagent. */
export interface BackgroundWork {
  kind: string;
  id: string;
  label: string;
  startedAt: string;
  command?: string;
  chat?: Uri;
  _meta?: Record<string, unknown>;
}

export interface Usage {
  inputTokens?: number;
  outputTokens?: number;
  cacheReadTokens?: number;
  model?: string;
  _meta?: Record<string, unknown>;
}

/** A reference to content that is stored elsewhere. */
export interface OutputReference {
  uri: Uri;
  sizeHint?: number;
  contentType?: string;
}

export type ToolInput = string | OutputReference;

export interface ConfirmationOption {
  id: string;
  label: string;
  kind: string;
}

export interface ToolResultContent {
  type: string;
  text?: string;
  title?: string;
  uri?: Uri;
  sizeHint?: number;
  contentType?: string;
  result?: { exitCode?: number; preview?: string };
  before?: FileEditSide;
  after?: FileEditSide;
  diff?: { added?: number; removed?: number };
}

/** Every state of a tool call in one shape: which of the optional fields are present follows from `status`. */
export interface ToolCall {
  status: string;
  toolCallId: string;
  toolName: string;
  displayName: string;
  intention?: string;
  contributor?: { kind: string };
  _meta?: Record<string, unknown>;
  partialInput?: string;
  invocationMessage?: Markdownish;
  toolInput?: ToolInput;
  confirmationTitle?: Markdownish;
  riskAssessment?: unknown;
  edits?: { items: FileEdit[] };
  editable?: boolean;
  options?: ConfirmationOption[];
  confirmed?: string;
  selectedOption?: ConfirmationOption;
  content?: ToolResultContent[];
  success?: boolean;
  pastTenseMessage?: Markdownish;
  structuredContent?: unknown;
  error?: unknown;
  reason?: string;
  reasonMessage?: Markdownish;
  userSuggestion?: Message;
  auth?: unknown;
}

export interface InputOption {
  id: string;
  label: string;
  description?: string;
  recommended?: boolean;
}

interface QuestionBase {
  id: string;
  title?: string;
  message: string;
  required?: boolean;
}
export interface TextQuestion extends QuestionBase {
  kind: 'text';
  format?: string;
  min?: number;
  max?: number;
  defaultValue?: string;
}
export interface NumberQuestion extends QuestionBase {
  kind: 'number' | 'integer';
  min?: number;
  max?: number;
  defaultValue?: number;
}
export interface BooleanQuestion extends QuestionBase {
  kind: 'boolean';
  defaultValue?: boolean;
}
export interface SelectQuestion extends QuestionBase {
  kind: 'single-select' | 'multi-select';
  options: InputOption[];
  allowFreeformInput?: boolean;
  min?: number;
  max?: number;
}

export type Question = TextQuestion | NumberQuestion | BooleanQuestion | SelectQuestion;

export type AnswerValue =
  | { kind: 'text'; value: string }
  | { kind: 'number'; value: number }
  | { kind: 'boolean'; value: boolean }
  | { kind: 'selected'; value: string; freeformValues?: string[] }
  | { kind: 'selected-many'; value: string[]; freeformValues?: string[] };

export type Answer = { state: 'draft' | 'submitted'; value: AnswerValue } | { state: 'skipped' };

export type Answers = Record<string, Answer>;

export type InputResponse = 'accept' | 'decline' | 'cancel';

export interface InputRequest {
  id: string;
  message?: string;
  url?: Uri;
  questions?: Question[];
  answers?: Answers;
}

export interface MarkdownPart {
  kind: 'markdown';
  id: string;
  content: string;
}
export interface ReasoningPart {
  kind: 'reasoning';
  id: string;
  content: string;
}
export interface ToolCallPart {
  kind: 'toolCall';
  toolCall: ToolCall;
}
export interface ErrorPart {
  kind: 'error';
  error: ErrorInfo;
  resumable?: boolean;
}
export interface NotificationPart {
  kind: 'systemNotification';
  content: Markdownish;
  _meta?: Record<string, unknown>;
}
export interface InputRequestPart {
  kind: 'inputRequest';
  request: InputRequest;
  response?: string;
}
export interface ContentRefPart extends OutputReference {
  kind: 'contentRef';
}

export type ResponsePart = MarkdownPart | ReasoningPart | ToolCallPart | ErrorPart | NotificationPart | InputRequestPart | ContentRefPart;

export interface ActiveTurn {
  id: string;
  startedAt: string;
  message: Message;
  responseParts: ResponsePart[];
  usage?: Usage;
}

export interface Turn {
  id: string;
  startedAt?: string;
  duration?: number;
  message: Message;
  responseParts: ResponsePart[];
  usage?: Usage;
  state: string;
}

export interface ChatState {
  resource: Uri;
  title: string;
  status: number;
  activity?: string;
  modifiedAt: string;
  changes?: ChangesSummary;
  changesets?: Changeset[];
  turns: Turn[];
  turnsNextCursor?: string;
  activeTurn?: ActiveTurn;
  steeringMessage?: PendingMessage;
  queuedMessages?: PendingMessage[];
  backgroundWork?: BackgroundWork[];
  draft?: Message;
}

/** An action as received: only `type` is certain; the reducers check everything else. */
export interface Action {
  type: string;
  [field: string]: unknown;
}

export interface ActionEnvelope {
  channel: Uri;
  action: Action;
  serverSeq: number;
  origin?: { clientId: string; clientSeq: number };
  rejectionReason?: string;
}

export interface Snapshot {
  resource: Uri;
  state: unknown;
  fromSeq: number;
}

export interface InitializeResult {
  protocolVersion: string;
  serverSeq: number;
  serverInfo?: { name: string; version?: string; title?: string };
  snapshots: Snapshot[];
  defaultDirectory?: Uri;
  _meta?: Record<string, unknown>;
}

export type ReconnectResult = { type: 'replay'; actions: ActionEnvelope[]; missing: Uri[] } | { type: 'snapshot'; snapshots: Snapshot[] };

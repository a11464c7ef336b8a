import type { Action, BackgroundWork, ChatState, ModelInfo, SessionState } from '../src/ahp/types';

export interface FakeSession {
  uri: string;
  state: SessionState;
  chat: ChatState;
  listed: boolean;
  changes?: { uri: string; turnId: string; before?: string | null; after?: string | null }[];
}

export class FakeHost {
  token: string;
  received: { id?: number; method?: string; params: Record<string, any> }[];
  log: { channel: string; action: Action; serverSeq: number }[];
  knownClients: Set<string>;
  sessions: Map<string, FakeSession>;
  resources: Map<string, { data: string; encoding: string }>;
  edits: { store(content: string, name: string): string; read(uri: string): { data: string; encoding: string } | undefined };
  turns: {
    setWork(session: FakeSession, work: Partial<BackgroundWork>): void;
    endWork(session: FakeSession, id: string, status: string): void;
  };
  methods: string[];
  models: ModelInfo[];
  setModels(models: ModelInfo[]): void;
  rejectNext: string | undefined;
  deaf: boolean;
  listen(port?: number): Promise<this>;
  readonly port: number;
  readonly socketUrl: string;
  readonly page: string;
  cut(): void;
  close(): Promise<void>;
  createSession(params: { channel: string; provider: string; workingDirectories?: string[]; config?: object }): null;
  chatOf(session: string): ChatState | undefined;
  publish(channel: string, action: Action): void;
  changesChanged(session: FakeSession): void;
  notifyRoot(method: string, params: object): void;
}

// The page's reducers against the official ones: the chats of every recording must be equal.

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { reduceChat } from '../../src/ahp/reducer';
import type { Action, ChatState } from '../../src/ahp/types';

interface Fixture {
  name: string;
  actions: Action[];
  chat: ChatState;
}

const lines = readFileSync(new URL('../fixtures/chats.jsonl', import.meta.url), 'utf8')
  .trimEnd()
  .split('\n');
const fixtures = lines.map((line) => JSON.parse(line) as Fixture);

it('has fixtures of both runtime versions', () => {
  expect(fixtures.length).toBeGreaterThan(200);
});

it.each(fixtures.map((fixture) => [fixture.name, fixture] as const))('reduces %s like the official reducers', (_, fixture) => {
  const { resource } = fixture.chat;
  let chat: ChatState = { resource, title: '', status: 1, modifiedAt: '2026-11-15T09:00:05.000Z', turns: [] };
  for (const action of fixture.actions) chat = reduceChat(chat, action);
  expect(JSON.parse(JSON.stringify(chat))).toEqual(fixture.chat);
});

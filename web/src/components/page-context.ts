// The page for parts of a conversation that can be answered. Without it they are shown, but cannot be answered.

import { createContext } from 'preact';

import type { Page } from '../page';

export const PageContext = createContext<Page | undefined>(undefined);

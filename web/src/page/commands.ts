// Slash commands: the agent does not take them into a running turn, so they wait for the next one.

/** Whether the agent may carry out a text as a command. A path is not one. */
export const isCommand = (text: string): boolean => /^\/[\w:-]+(\s|$)/.test(text);

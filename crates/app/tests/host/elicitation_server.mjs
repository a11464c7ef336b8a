// An MCP server for tests: its tool asks the user with the parameters that the call contains as JSON text, and
// returns the response.
import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const tool = { name: "ask", description: "Asks the user", inputSchema: { type: "object", properties: { parameters: { type: "string" } } } };
const calls = new Map();

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params, result, error } = JSON.parse(line);
  if (method === "initialize") {
    const { protocolVersion } = params;
    send({ id, result: { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "forms", version: "1.0.0" } } });
  } else if (method === "tools/list") {
    send({ id, result: { tools: [tool] } });
  } else if (method === "tools/call") {
    calls.set(`question-${id}`, id);
    send({ id: `question-${id}`, method: "elicitation/create", params: JSON.parse(params.arguments.parameters) });
  } else if (method === undefined && calls.has(id)) {
    send({ id: calls.get(id), result: { content: [{ type: "text", text: JSON.stringify(result ?? error) }] } });
    calls.delete(id);
  } else if (method !== undefined && id !== undefined) {
    send({ id, result: {} });
  }
});

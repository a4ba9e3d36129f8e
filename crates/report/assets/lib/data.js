/* What the page was given to show: JSON, deflated and in base64. */
async function embedded() {
  const data = byId("data");
  if (data.type === "application/json") return data.textContent;
  const binary = Uint8Array.from(atob(data.textContent), (c) => c.charCodeAt(0));
  const inflated = new Blob([binary]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(inflated).text();
}

const page = JSON.parse(await embedded());

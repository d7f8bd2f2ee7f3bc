// The panel of the pinned block: everything that is known about it, with links.

// `act` has block(number), request(id), seq(number) and close().
function fillPanel(panel, facts, act) {
  const title = element("div", undefined, "title")
  const state = facts.unknown ? "nothing is known of it here" : stateWords(facts)
  title.append(element("span", `Block ${number(facts.block)}: ${state}`))
  title.append(button("✕", "Unpin this block (Escape)", act.close, "close"))
  const parts = [title]
  if (!facts.unknown) {
    parts.push(definitionList(blockFacts(facts, act)))
    const chain = chainOf(facts, act)
    if (chain) parts.push(element("h4", "Prefix chain, first block first"), chain)
    parts.push(element("h4", "Its tokens"))
    parts.push(
      facts.text
        ? element("div", facts.text, "text")
        : element("p", facts.owners.length ? "This source records no text." : "No sequence holds it now.", "quiet"),
    )
    parts.push(element("h4", "What happened to it, newest first"))
    parts.push(changesOf(facts.changes, act))
  }
  const scrolled = panel.scrollTop
  panel.replaceChildren(...parts)
  panel.scrollTop = scrolled
}

function chainOf(facts, act) {
  const { chain, parent, cached_as: hash } = facts
  if (chain === null) {
    if (!hash) return null
    return element("p", `${parent ? `${parent.slice(0, 8)} → ` : ""}${hash.slice(0, 8)} (this block)`, "chain")
  }
  const line = element("p", undefined, "chain")
  for (const { block, hash: own } of chain) {
    const title = own ? `Block ${block}, in the prefix cache as ${own}` : `Block ${block}, not in the prefix cache`
    line.append(link(String(block), title, () => act.block(block)), " → ")
  }
  line.append(element("b", `${facts.block} (this block)`))
  return line
}

function changesOf(changes, act) {
  if (!changes.length) return element("p", "Nothing in the records that are kept.", "quiet")
  const list = element("ol", undefined, "changes")
  for (const change of changes) {
    const item = element("li")
    const when = `step ${number(Math.max(0, change.step))}`
    item.append(link(when, `Go to this step, ${change.time.toFixed(2)} s after the start`, () => act.seq(change.seq)))
    item.append(element("span", `${change.time.toFixed(1)} s`, "time"), element("span", change.text))
    list.append(item)
  }
  return list
}

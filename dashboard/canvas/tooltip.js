// What is said about one block, beside it. Everything is set as text: it may come from a prompt.

const element = (name, text, className) => {
  const node = document.createElement(name)
  if (text !== undefined) node.textContent = text
  if (className) node.className = className
  return node
}

// Fills `tip` with the server's facts; `onClose` adds a button (for the pinned one).
function fillTip(tip, facts, onClose) {
  const title = element("div", undefined, "title")
  const state = facts.mark === "lost" ? `${facts.state}, just lost by preemption` : facts.state
  const copied = facts.mark === "copied" ? `${state}, just copied` : state
  title.append(element("span", `Block ${facts.block}: ${copied}`))
  if (onClose) {
    const button = element("button", "✕")
    button.setAttribute("aria-label", "Unpin")
    button.onclick = onClose
    title.append(button)
  }
  const list = element("dl")
  const row = (term, text) => list.append(element("dt", term), element("dd", text))
  for (const owner of facts.owners) {
    row("owner", `sequence ${owner.sequence} of request ${owner.request}, index ${owner.index} of ${owner.blocks}`)
  }
  if (facts.more_owners) row("", `and ${facts.more_owners} more owners`)
  if (!facts.owners.length) row("owner", "none")
  row("ref count", facts.ref_count ?? "unknown")
  const filled = facts.filled ?? "unknown"
  row("fill", facts.filled === null ? filled : `${filled} of ${facts.block_size} slots`)
  if (facts.cached_as) row("prefix index", facts.cached_as)
  row("last change", sinceText(facts))
  tip.replaceChildren(title, list)
  if (facts.text) tip.append(element("div", facts.text, "text"))
}

function sinceText({ last_change: last, seq }) {
  if (last < 0) return "never used"
  const ago = seq - last
  return ago <= 0 ? "in the last record" : `${ago.toLocaleString("en")} record${ago > 1 ? "s" : ""} ago`
}

// Beside the cell at `box` (viewport pixels), inside the window.
function placeTip(tip, box) {
  const margin = 8
  const { offsetWidth: width, offsetHeight: height } = tip
  let left = box.right + margin
  if (left + width > innerWidth - margin) left = box.left - width - margin
  left = Math.max(margin, Math.min(left, innerWidth - width - margin))
  const top = Math.max(margin, Math.min(box.top, innerHeight - height - margin))
  tip.style.left = `${left}px`
  tip.style.top = `${top}px`
}

// Colours: read from the page's theme, as numbers that can be mixed and compared.

const STATES = ["free", "used", "cached", "shared"]
const MARKS = [null, "copied", "preempted"]
const OWNER_COLOURS = 24 // see dashboard/cells.py

// The theme as it is now. `palette` is in the order free, used, cached, shared, copied, preempted.
function readTheme(host) {
  const style = getComputedStyle(host)
  const value = (name) => style.getPropertyValue(name).trim()
  const page = parseColour(value("--st-background-color"))
  const dark = luminance(page) < 0.3
  return {
    palette: value("--st-chart-categorical-colors").split(",").slice(0, 6).map(parseColour),
    page,
    dark,
    text: parseColour(value("--st-text-color")),
    border: parseColour(value("--st-border-color")),
    font: value("--st-font") || "sans-serif",
    owners: ownerColours(dark),
  }
}

// Twelve hues in two lightnesses. Who owns a block is never said by colour alone: see the tooltip.
function ownerColours(dark) {
  return Array.from({ length: OWNER_COLOURS }, (_, i) => {
    const second = i >= OWNER_COLOURS / 2
    const hue = (i % 12) * 30 + (second ? 15 : 0)
    const light = dark ? (second ? 72 : 52) : second ? 62 : 40
    return parseColour(`hsl(${hue} 62% ${light}%)`)
  })
}

// `count` colours from faint to strong, in the theme's first used colour.
function ramp(theme, count) {
  const faint = mix(theme.palette[1], theme.page, 0.16)
  const strong = mix(theme.text, theme.palette[1], theme.dark ? 0.55 : 0.35)
  return Array.from({ length: count }, (_, i) => {
    const share = count === 1 ? 1 : i / (count - 1)
    return share < 0.7
      ? mix(theme.palette[1], faint, share / 0.7)
      : mix(strong, theme.palette[1], (share - 0.7) / 0.3)
  })
}

// Any CSS colour as [red, green, blue], 0..255.
function parseColour(text) {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
  context.fillStyle = text.trim()
  context.fillRect(0, 0, 1, 1)
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)]
}

const css = (colour) => `rgb(${colour.join(" ")})`

// `share` of `one`, the rest of `other`.
const mix = (one, other, share) =>
  one.map((channel, i) => Math.round(channel * share + other[i] * (1 - share)))

// Relative luminance after WCAG 2, 0 black .. 1 white.
function luminance(colour) {
  const [r, g, b] = colour.map((channel) => {
    const c = channel / 255
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

const inkOn = (colour) => (luminance(colour) > 0.28 ? [16, 20, 28] : [255, 255, 255])

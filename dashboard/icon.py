"""The picture in the browser's tab: four blocks, as SVG."""

ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
  <rect x="2" y="2" width="13" height="13" rx="2" fill="#0858C7"/>
  <rect x="17" y="2" width="13" height="13" rx="2" fill="#FFB902"/>
  <rect x="2" y="17" width="13" height="13" rx="2" fill="#47AAF5"/>
  <rect x="17" y="17" width="13" height="13" rx="2" fill="#E4E7EC" stroke="#7C8798"/>
</svg>
"""

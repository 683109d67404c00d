"""Charts of a report: one module each. SVG where there are two axes, strips of HTML where there is one."""

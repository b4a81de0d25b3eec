mod run;

use std::path::Path;

use super::*;
use crate::claim::Claims;
use crate::folder::Manifest;
use crate::measured::{Measured, Row};
use crate::study::Study;
use run::{CLAIMS, PAPER, cell, row, with, with_more};

/// All texts between `from` and `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).filter_map(|rest| rest.split_once(to)).map(|(one, _)| one).collect()
}

#[test]
fn markdown_has_the_papers_numbers_beside_ours_and_what_is_not_reproduced() {
    let page = with(None, markdown);
    for line in [
        "- command: bentpipe papers \\<x>",
        "- seed 7, 5 cells of 12 that were planned",
        "## On \\<b>links\\</b> & \"loss\"",
        "| **Times \\<i>** (figure 1) |  | `e2e-cubic` | `bentpipe` |",
    ] {
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    }
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(lines.iter().any(|line| line.contains("| 1 to 10 s | 10 s | 2.5 s |")), "{page}");
    assert!(lines.iter().all(|line| [5, 7].contains(&columns(line))), "{page}");
    assert!(
        page.lines().filter(|line| !line.starts_with('|')).all(|line| line.chars().count() <= 112)
    );
}

#[test]
fn a_study_shows_what_its_links_were_measured_to_be() {
    let page = with(None, html);
    let line = "<tr><td><code>pages</code></td><th scope=\"row\">mss</th><td>radio, return</td><td class=\"number\">380.7 to 380.9</td>\
                <td class=\"number\">–</td><td class=\"number\">4.44 to 8.12</td><td class=\"number\">5</td></tr>";
    assert!(page.contains(line), "{page}");
}

#[test]
fn the_page_needs_no_other_file_and_escapes_what_it_shows() {
    let page = with(Some("let end = '</script><!--'; window.vegaEmbed = 1 < 2 && /</g;"), html);
    assert!(page.contains("On &lt;b&gt;links&lt;/b&gt; &amp; &quot;loss&quot;"));
    assert!(page.contains("Times &lt;i&gt;") && page.contains("bentpipe papers &lt;x&gt;"));
    assert!(page.contains("About &lt;/script&gt; it."));
    assert!(page.contains("let end = '<\\/script><\\!--'; window.vegaEmbed = 1 < 2 && /</g;"));
    let scripts = page.matches("<script").count();
    assert_eq!((scripts, page.matches("</script>").count()), (3, 3));
    for address in between(&page, "href=\"", "\"").into_iter().chain(between(&page, "src=\"", "\""))
    {
        let own = address.starts_with('#') || address.starts_with("cells/") || address == "data:,";
        assert!(own, "{address}");
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn every_number_leads_to_its_runs_and_these_to_their_file() {
    let page = with(None, html);
    for address in between(&page, "href=\"#", "\"") {
        assert!(page.contains(&format!("id=\"{address}\"")), "{address} leads nowhere");
    }
    let runs = between(&page, "id=\"runs-small-pages-", "</p>");
    assert_eq!(runs.len(), 5);
    let bentpipe = runs.iter().find(|run| run.contains("bentpipe")).unwrap();
    for part in [
        ">40<",
        ">41<",
        ">2 s<",
        ">3 s<",
        "600 ms, median of 2",
        "href=\"cells/small/pages/contender=bentpipe,engine=emu,link=mss,page=one,protocol=http%252F1.1.json\"",
    ] {
        assert!(bentpipe.contains(part), "{part}: {bentpipe}");
    }
    assert!(runs.iter().any(|run| run.contains("60 s, cut off")));
}

#[test]
fn a_run_without_files_of_its_cells_leads_to_its_tables_and_says_so() {
    let page = with(None, |report| {
        let files = Files::new(Path::new("/a/run"), Path::new("/b"), false);
        html(&Report { files: &files, ..*report })
    });
    let runs = between(&page, "id=\"runs-small-pages-", "</p>");
    assert_eq!(runs.len(), 5);
    for run in runs {
        assert!(run.contains("href=\"../a/run/tables/small.pages.parquet\""), "{run}");
    }
    assert!(!page.contains("cells/"));
    assert_eq!(page.matches("This copy of the run has no raw files of its cells").count(), 2);
    assert!(!with(None, html).contains("This copy"));
}

#[test]
fn the_report_shows_published_and_measured_values_in_one_row() {
    let page = with(None, html);
    let rows = between(&page, "<th scope=\"row\">", "</tr>");
    let of = |text: &str| *rows.iter().find(|row| row.contains(text)).unwrap();
    let range = of("1 to 10 s");
    assert!(range.contains(">10 s</a>") && range.contains(">2.5 s</a>"), "{range}");
    assert!(range.contains("8\u{a0}to\u{a0}12\u{a0}s · max\u{a0}12\u{a0}s · n\u{a0}2"), "{range}");
    let quotient = of("up to 4.8 times");
    assert!(quotient.contains("4.8 ×") && quotient.contains("<summary>∞</summary>"), "{quotient}");
    assert!(
        quotient.contains("2 pairs, 2 × to ∞") && quotient.contains("not measured"),
        "{quotient}"
    );
    assert!(page.contains("<span class=\"beside\">mean 10 s ± 2.83 s</span>"), "{page}");
    assert!(page.contains("<span class=\"beside\">mean never</span>"), "{page}");
    assert!(of("the curve").contains("lost"));
    for text in
        ["Theirs.", "Ours.", "A difference.", "A note.", "connections = 6", "Nobody was asked."]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("scripts/setup.sh vega"));
}

#[test]
fn claims_are_reproduced_or_not_and_say_by_what() {
    let page = with(None, html);
    let of = |id: &str| page.split(&format!("id=\"claim-{id}\"")).nth(1).unwrap();
    let badge = |id| between(of(id), "class=\"badge ", "\"")[0];
    assert_eq!(badge("small-slower"), "reproduced");
    assert_eq!(badge("bentpipe-fast"), "not-reproduced");
    assert_eq!(badge("small-kcptun"), "not-measured");
    assert!(
        of("small-slower").contains(
            "measured <b>2 ×</b> (0.301 × to 2 ×), it must be above 0.25 × in every cell"
        )
    );
    assert!(
        of("bentpipe-fast")
            .contains("measured <b>2.5 s</b> (323 ms to 13.3 s), it must be below 250 ms")
    );
    let cover = |id| between(of(id), "<span class=\"beside\">", "</span>")[0];
    assert_eq!(cover("small-slower"), "4 of 4 cells, 2 runs each");
    assert_eq!(cover("bentpipe-fast"), "1 of 1 cell, 2 runs each");
    assert_eq!(cover("small-kcptun"), "0 of 1 cell");
    let goals = page.split("class=\"claims goals\"").nth(1).unwrap();
    assert!(between(goals, "<li>", "</li>")[0].contains("1 of 1 cell, 2 runs each"), "{goals}");
}

/// If three digits hide the verdict, both the page and the text show more.
#[test]
fn measured_values_differ_visibly_from_goals() {
    let look = |report: &Report<'_>| {
        let claims = CLAIMS.replace("below = 0.25", "below = 2.4999");
        let claims = Claims::parse("claims.toml", &claims).unwrap();
        let report = Report { claims: &claims, ..*report };
        (html(&report), text(&report))
    };
    let (page, text) = with(None, look);
    let claim = page.split("id=\"claim-bentpipe-fast\"").nth(1).unwrap();
    assert!(
        claim.contains("measured <b>2.5 s</b> (323.21 ms to 13.3 s), it must be below 2.4999 s"),
        "{claim}"
    );
    assert!(page.contains("measured 2.5 s (323.21 ms to 13.3 s); bound: below 2.4999 s"));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("(measured 2.5 s (323.21 ms to 13.3 s), bound below 2.4999 s;"),
        "{text}"
    );
}

#[test]
fn a_claim_that_lacks_cells_says_so() {
    let lacking = |report: &Report<'_>| {
        let measured = [report.measured[..2].to_vec(), report.measured[3..].to_vec()].concat();
        let report = Report { measured: &measured, ..*report };
        (html(&report), text(&report))
    };
    let (page, text) = with(None, lacking);
    let claim = page.split("id=\"claim-small-slower\"").nth(1).unwrap();
    assert_eq!(between(claim, "class=\"badge ", "\"")[0], "undecided");
    let claim = claim.split("</li></ul>").next().unwrap();
    assert!(claim.contains("3 of 4 cells, 2 runs each"), "{claim}");
    assert!(claim.contains("da2gc: open, 1 of its cells missing, runs of "), "{claim}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = "undecided HTTP/2 is slower. (measured ∞ (0.301 × to ∞), bound above 0.25 × in every cell; 3 of 4 cells, 2 runs each)";
    assert!(text.contains(says), "{text}");
    assert!(
        text.contains("Claims: 0 reproduced, 0 not reproduced, 1 undecided, 1 not measured"),
        "{text}"
    );
}

#[test]
fn impossible_values_are_shown_and_not_counted() {
    let faulty = |report: &Report<'_>| {
        let mut measured = report.measured.to_vec();
        measured[4].rows[1].value = -3.0;
        let report = Report { measured: &measured, ..*report };
        (html(&report), text(&report))
    };
    let (page, text) = with(None, faulty);
    let runs = between(&page, "id=\"runs-small-pages-", "</p>");
    let bentpipe = runs.iter().find(|run| run.contains("bentpipe")).unwrap();
    assert!(bentpipe.contains(">-3 s, cannot be: set aside<"), "{bentpipe}");
    assert!(page.contains("1 of page load time") && page.contains(">1 set aside</a>"));
    let claim = page.split("id=\"claim-bentpipe-fast\"").nth(1).unwrap();
    assert!(
        claim.contains("1 of 1 cell, 1 run each, values of 1 set aside")
            && claim.contains("measured <b>2 s</b>")
    );
    assert!(text.contains("Set aside: ") && text.contains("plt 1"), "{text}");
    assert!(!with(None, super::text).contains("Set aside"));
    assert!(with(None, html).contains("Here there are none."));
}

#[test]
fn a_95th_percentile_of_few_values_is_called_the_greatest() {
    let look = |runs: u32| {
        move |report: &Report<'_>| {
            let mut measured = report.measured.to_vec();
            for place in [0, 4] {
                let rows = (0..runs).map(|run| row("plt", run, f64::from(run), true));
                measured[place].rows = rows.collect();
            }
            let paper = PAPER.replace("low = 1.0\nhigh = 10.0", "kind = \"p95\"\nvalue = 10.0");
            let studies = [Study::parse("small", "small.toml", &paper).unwrap()];
            let claims = "of = { contender = \"e2e-cubic\", protocol = \"http/1.1\", link = \"mss\" }\nstatistic = \"p95\"";
            let claims = CLAIMS.replace(
                "of = { contender = \"bentpipe\", protocol = \"http/1.1\", link = \"mss\" }",
                claims,
            );
            let claims = Claims::parse("claims.toml", &claims).unwrap();
            let report =
                Report { measured: &measured, studies: &studies, claims: &claims, ..*report };
            (html(&report), text(&report))
        }
    };
    let few = with(None, look(19));
    assert!(few.0.contains("the greatest: 19 values have no p95"));
    assert!(few.0.contains("95th percentiles, or maxima (19 values in a cell)"));
    assert!(few.1.contains("max for p95, page load time"), "{}", few.1);
    let many = with(None, look(20));
    assert!(!many.0.contains("values have no p95") && !many.0.contains("a cell has"));
    assert!(many.0.contains("below 250 ms, 95th percentiles of runs"));
    assert!(!many.1.contains("max for p95"), "{}", many.1);
}

#[test]
fn a_figure_is_a_specification_with_its_rows() {
    let page = with(Some("bundle"), html);
    let data = between(&page, "<script type=\"application/json\">", "</script>");
    assert_eq!(data.len(), 1);
    let data: serde_json::Value = serde_json::from_str(data[0]).unwrap();
    assert_eq!(data["rows"].as_array().unwrap().len(), 5);
    assert_eq!(data["colours"], serde_json::json!(["http/1.1", "http/2"]));
    assert_eq!(data["contenders"][1]["title"], "with Bentpipe: bentpipe");
    let row = data["rows"].as_array().unwrap().iter().find(|row| row["w"] == "bentpipe").unwrap();
    assert_eq!((&row["x"], &row["y"], &row["high"]), (&"mss".into(), &2.5.into(), &3.0.into()));
    assert_eq!(data["spec"]["layer"][0]["mark"]["type"], "bar");
    let without = with(None, html);
    assert!(!without.contains("bundle"));
}

#[test]
fn the_same_measurements_make_the_same_page() {
    assert_eq!(with(Some("bundle"), html), with(Some("bundle"), html));
}

#[test]
fn bentpipe_is_compared_where_today_was_measured_and_fewer_cells_are_marked() {
    let line = |text: &str| {
        text.lines().find(|line| line.contains("mss http/1.1")).expect("a row").to_owned()
    };
    // The page differs from the baseline's, so this cell does not count.
    let other = cell("bentpipe", "mss", "http/1.1", [20.0, 30.0]);
    let other = Measured { cell: other.cell.with("page", "two"), ..other };
    let said = with_more(vec![other], None, text);
    assert!(line(&said).ends_with(" 2.5 s") && !said.contains("of fewer cells"), "{said}");
    // A baseline of another page, which Bentpipe lacks.
    let other = cell("e2e-cubic", "mss", "http/1.1", [20.0, 30.0]);
    let other = || Measured { cell: other.cell.with("page", "two"), ..other.clone() };
    let said = with_more(vec![other()], None, text);
    assert!(line(&said).ends_with(" 2.5 s*"), "{said}");
    assert!(said.contains("  * of fewer cells than are measured today\n"), "{said}");
    let page = with_more(vec![other()], None, html);
    assert!(page.contains("of 1 of the 2 cells measured today"));
}

#[test]
fn the_text_has_the_same_in_80_columns() {
    let text = with(None, text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let value = text.lines().find(|line| line.contains("mss http/1.1")).unwrap();
    assert!(
        value.contains("1 to 10 s") && value.contains(" 10 s") && value.ends_with("2.5 s"),
        "{value}"
    );
    assert!(
        text.contains("Claims: 1 reproduced, 0 not reproduced, 0 undecided, 1 not measured"),
        "{text}"
    );
    for says in [
        "  missed          small: Bentpipe takes a second. (measured 2.5 s (323 ms to",
        "                  13.3 s), bound below 250 ms; 1 of 1 cell, 2 runs each)",
        "  reproduced      HTTP/2 is slower. (4 of 4 cells, 2 runs each)",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(text.contains("\n                  Light takes longer.\n"), "{text}");
    assert!(!text.contains("It is not known why."), "it is reproduced: {text}");
    assert!(
        text.contains("All claims: 1 reproduced, 1 not reproduced, 0 undecided, 1 not measured"),
        "{text}"
    );
}

/// Shows each built-in study with a value in every cell of its quick run. Every kind of figure and
/// every column must appear on the page.
#[test]
fn every_section_of_the_studies_built_in_is_shown() {
    let (studies, claims) = (Study::all().unwrap(), Claims::all().unwrap());
    let mut measured = Vec::new();
    for study in &studies {
        for (grid, planned) in study.plan(true) {
            let mut rows: Vec<Row> =
                grid.metrics.iter().map(|metric| row(metric, 0, 0.5, true)).collect();
            rows.iter_mut().for_each(|row| row.x = planned.cell.on("x").is_none().then_some(0.1));
            let (paper, cell) = (study.name.clone(), planned.cell.clone());
            measured.push(Measured { paper, grid: grid.id.clone(), cell, rows });
        }
    }
    let manifest = Manifest {
        version: "0.1.0".into(),
        studies: Vec::new(),
        seed: 1,
        quick: true,
        builds: Vec::new(),
        hosts: Vec::new(),
        links: Vec::new(),
    };
    let report = Report {
        studies: &studies,
        claims: &claims,
        measured: &measured,
        manifest: &manifest,
        made: &[],
        files: &Files::default(),
        vega: Some("bundle"),
    };
    let page = html(&report);
    let drawn = studies.iter().flat_map(|study| &study.sections);
    let drawn = drawn.filter(|section| section.figure.kind != crate::FigureKind::Table).count();
    let figures = between(&page, "<script type=\"application/json\">", "</script>");
    assert_eq!(figures.len(), drawn);
    for figure in figures {
        let data: serde_json::Value = serde_json::from_str(figure).unwrap();
        assert!(!data["rows"].as_array().unwrap().is_empty(), "{}", data["spec"]);
    }
    assert!(!page.contains("Nothing of this section was measured"));
    for address in between(&page, "href=\"#", "\"") {
        assert!(page.contains(&format!("id=\"{address}\"")), "{address} leads nowhere");
    }
}
